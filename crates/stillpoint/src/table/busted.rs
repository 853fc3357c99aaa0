//! Deliberately broken variants of the table, as [`crate::busted`] has them of the reclamation: controls for the
//! models and for torture. In builds with `--cfg stillpoint_busted`, one is chosen by [`select`] or by the environment
//! variable `STILLPOINT_BUSTED_TABLE`.

use crate::sync::atomic::Ordering;

macro_rules! variants {
    ($($variant:ident = $name:literal: $text:literal,)*) => {
        /// What is broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Variant { $(#[doc = $text] $variant,)* }

        impl Variant {
            /// Every variant there is.
            pub const ALL: &'static [Variant] = &[$(Variant::$variant,)*];

            /// The name on the command line.
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
    NoReload = "no-reload": "A protected load does not load its word a second time.",
    NoLight = "no-light": "A protected load has no light fence between slot and reload.",
    FirstLoadRelaxed = "first-load-relaxed": "A protected load begins with a relaxed load.",
    ReloadRelaxed = "reload-relaxed": "A protected load confirms with a relaxed reload.",
    OldWordKept = "old-word-kept": "The mover leaves the word in the old bucket.",
    MarkLate = "mark-late": "The mover marks the old bucket as moved after it has cleared it.",
    IgnoreMark = "ignore-mark": "A reader does not follow the mark of a moved bucket.",
    NextNotPinned = "next-not-pinned": "The next array is read without a slot that pins it.",
    TagLoadRelaxed = "tag-load-relaxed": "The tags are loaded relaxed, not acquire.",
    EntryLoadRelaxed = "entry-load-relaxed": "Readers in a region load the word relaxed, not acquire.",
    EntryStoreRelaxed = "entry-store-relaxed": "An entry is linked by a relaxed store.",
    CompareFirst = "compare-first": "An entry is compared with the key before the load is confirmed.",
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
        let name = std::env::var("STILLPOINT_BUSTED_TABLE").ok()?;
        let variant = Variant::ALL.iter().copied().find(|variant| variant.name() == name);
        Some(variant.unwrap_or_else(|| panic!("STILLPOINT_BUSTED_TABLE: there is no variant `{name}`")))
    })
}
