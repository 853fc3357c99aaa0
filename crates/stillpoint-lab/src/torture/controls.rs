//! The controls: broken variants of the library, which a run must catch.

use stillpoint::busted::{self, Variant};

use crate::error::Stop;

/// The variants that a run catches, on x86-64 with two CPUs, within seconds. The models in `loom` catch all of them,
/// and the others, too:
///
/// - Most others weaken an ordering that x86-64 keeps of its own accord: it reorders neither stores nor loads with
///   each other, and nothing with a read-modify-write.
/// - `counter-after-fence` shows only if a reader and two writers run at the same moment, on three CPUs.
/// - `register-no-fence` leaves a window of some nanoseconds between the last read-modify-write of a registration and
///   the first load, shorter than the way from an unlink to a scan.
pub(super) const CAUGHT_BY_TORTURE: &[Variant] = &[
    Variant::PinNoLight,
    Variant::NestedLeave,
    Variant::ProtectNoReload,
    Variant::ProtectNoLight,
    Variant::OnlineNoFence,
    Variant::LeaveForgotten,
    Variant::TokenByStore,
    Variant::TokenTooEarly,
    Variant::NoFence,
    Variant::NoHeavy,
    Variant::FenceFromBefore,
    Variant::SkipWhenQuiet,
    Variant::CursorForAll,
    Variant::IgnoreRegions,
    Variant::IgnoreHazards,
    Variant::HazardsFirst,
    Variant::DropFrees,
];

/// Which checkers catch a variant.
pub(super) fn checkers(variant: Variant) -> &'static str {
    if CAUGHT_BY_TORTURE.contains(&variant) { "torture, loom" } else { "loom" }
}

/// Breaks the library of this process in the way of that name.
pub(super) fn select(name: &str) -> Result<Variant, Stop> {
    let variant = Variant::ALL.iter().copied().find(|variant| variant.name() == name);
    let variant = variant
        .ok_or_else(|| Stop::usage(format!("there is no broken variant '{name}': see --list-busted")))?;
    if busted::select(variant) {
        Ok(variant)
    } else {
        Err(Stop::usage(format!(
            "this build has no broken variants; build one apart with RUSTFLAGS='--cfg stillpoint_busted' \
             CARGO_TARGET_DIR=target/busted cargo run --release -- torture --busted {name}"
        )))
    }
}
