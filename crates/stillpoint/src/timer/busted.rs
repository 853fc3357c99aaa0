//! Deliberately broken variants of timers across threads, as [`crate::busted`] has them of the reclamation: controls for
//! the models. In builds with `--cfg stillpoint_busted`, one is chosen by [`select`] or by the environment variable
//! `STILLPOINT_BUSTED_TIMER`.

use crate::sync::atomic::Ordering;

macro_rules! variants {
    ($($variant:ident = $name:literal: $text:literal,)*) => {
        /// What is broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Variant { $(#[doc = $text] $variant,)* }

        impl Variant {
            /// Every variant there is.
            pub const ALL: &'static [Variant] = &[$(Variant::$variant,)*];

            /// The name in the environment.
            pub fn name(self) -> &'static str {
                match self { $(Variant::$variant => $name,)* }
            }

            /// What is broken, in one sentence.
            pub fn describe(self) -> &'static str {
                match self { $(Variant::$variant => $text,)* }
            }
        }
    };
}

variants! {
    ClaimRelaxed = "claim-relaxed": "A timer is claimed for another use by a relaxed operation.",
    ArmRelaxed = "arm-relaxed": "A timer is armed by a relaxed store.",
    FindRelaxed = "find-relaxed": "Who cancels a timer loads its state relaxed, not acquire.",
    CancelRelaxed = "cancel-relaxed": "A timer is cancelled by a relaxed operation.",
    CancelByStore = "cancel-by-store": "A timer is cancelled by a load and a store.",
    TakeLate = "take-late": "A cancelled timer may be used again before its value was taken.",
    TakenRelaxed = "taken-relaxed": "The store after the value of a cancelled timer was taken is relaxed.",
    FinishRelaxed = "finish-relaxed": "The owner ends a callback by a relaxed operation.",
    PublishRelaxed = "publish-relaxed": "The source publishes what it wrote into the ring by a relaxed store.",
    RoomRelaxed = "room-relaxed": "The owner gives room in the ring back by a relaxed store.",
    TakeTwice = "take-twice": "The owner takes an arming in that it has taken in already.",
    HintRelaxed = "hint-relaxed": "A hint is pushed by a relaxed operation.",
    HintByStore = "hint-by-store": "The owner takes a hint by a relaxed store to its mark.",
    HintMarkLate = "hint-mark-late": "The owner clears the mark of a hint after it has looked at the timer.",
}

/// Chooses the variant of this process. Returns whether this build has variants and none was chosen before.
pub fn select(variant: Variant) -> bool {
    cfg!(stillpoint_busted) && CHOSEN.set(Some(variant)).is_ok()
}

static CHOSEN: std::sync::OnceLock<Option<Variant>> = std::sync::OnceLock::new();

/// Whether `variant` is the one chosen.
#[inline(always)]
pub(crate) fn is(variant: Variant) -> bool {
    cfg!(stillpoint_busted) && chosen() == Some(variant)
}

/// The ordering that the protocol asks for, or relaxed if `variant` is the one chosen.
#[inline(always)]
pub(crate) fn order(variant: Variant, right: Ordering) -> Ordering {
    if is(variant) {
        Ordering::Relaxed
    } else {
        right
    }
}

fn chosen() -> Option<Variant> {
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("STILLPOINT_BUSTED_TIMER").ok()?;
        let variant = Variant::ALL.iter().copied().find(|variant| variant.name() == name);
        Some(variant.unwrap_or_else(|| panic!("STILLPOINT_BUSTED_TIMER: there is no variant `{name}`")))
    })
}
