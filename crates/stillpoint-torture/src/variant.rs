//! The controls: broken variants of the library, and the checkers that catch each.

use std::fmt;

use stillpoint::busted::{self as rcu, Variant as Rcu};
use stillpoint::table::busted::{self as table, Variant as Table};
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::say;

/// A broken variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Rcu(Rcu),
    Table(Table),
}

/// The variants that a run catches on x86-64 with two CPUs, within seconds. The models in `loom` catch them, too.
const CAUGHT_BY_TORTURE: &[Broken] = &[
    Broken::Rcu(Rcu::PinNoLight),
    Broken::Rcu(Rcu::NestedLeave),
    Broken::Rcu(Rcu::ProtectNoReload),
    Broken::Rcu(Rcu::ProtectNoLight),
    Broken::Rcu(Rcu::PassiveKept),
    Broken::Rcu(Rcu::OnlineNoFence),
    Broken::Rcu(Rcu::LeaveForgotten),
    Broken::Rcu(Rcu::TokenByStore),
    Broken::Rcu(Rcu::TokenTooEarly),
    Broken::Rcu(Rcu::NoHeavy),
    Broken::Rcu(Rcu::SkipWhenQuiet),
    Broken::Rcu(Rcu::CursorForAll),
    Broken::Rcu(Rcu::IgnoreRegions),
    Broken::Rcu(Rcu::IgnoreHazards),
    Broken::Rcu(Rcu::HazardsFirst),
    Broken::Rcu(Rcu::DropFrees),
    Broken::Rcu(Rcu::StopAfterCheck),
    Broken::Rcu(Rcu::RoomByLoad),
    Broken::Rcu(Rcu::RoomBeforeFree),
    Broken::Rcu(Rcu::WakerAfterCheck),
    Broken::Rcu(Rcu::BoostNoSecondRestore),
    Broken::Rcu(Rcu::OfflineInRegion),
    Broken::Table(Table::NoReload),
    Broken::Table(Table::NoLight),
    Broken::Table(Table::OldWordKept),
    Broken::Table(Table::MarkLate),
    Broken::Table(Table::IgnoreMark),
    Broken::Table(Table::NextNotPinned),
    Broken::Table(Table::CompareFirst),
];

/// The variants that the library's test `mix` catches, too.
const CAUGHT_BY_MIX: &[Broken] =
    &[Broken::Rcu(Rcu::NestedLeave), Broken::Rcu(Rcu::IgnoreRegions), Broken::Rcu(Rcu::IgnoreHazards)];

const KEPT: &str =
    "x86-64 reorders neither stores nor loads with each other, and nothing with a read-modify-write";

const NARROW: &str = "its window of some nanoseconds is not met often enough";

const LINKS: &str = "torture has no data structures made of links";
const NO_SLOTS: &str = "torture has no slots without a thread";
const NO_HANDLERS: &str = "no handler of torture interrupts a return";
const NO_QUEUES: &str = "torture has no queues of callbacks; tests of the library have";

/// The variants that only the models in `loom` catch, and why.
const CAUGHT_ONLY_BY_LOOM: &[(Broken, &str)] = &[
    (Broken::Rcu(Rcu::EnterRelaxed), KEPT),
    (Broken::Rcu(Rcu::LeaveRelaxed), KEPT),
    (Broken::Rcu(Rcu::PinTokenRelaxed), KEPT),
    (Broken::Rcu(Rcu::HazardSetRelaxed), KEPT),
    (Broken::Rcu(Rcu::HazardClearRelaxed), KEPT),
    (Broken::Rcu(Rcu::ProtectReloadRelaxed), KEPT),
    (
        Broken::Rcu(Rcu::OwnedLight),
        "on x86-64 the read-modify-write that claims the record comes before the slot is set, and its window is narrow",
    ),
    (Broken::Rcu(Rcu::UnlentRelaxed), KEPT),
    (Broken::Rcu(Rcu::LentTwice), "torture has its own domain; threads lend slots only in the default one"),
    (Broken::Rcu(Rcu::SlotUncounted), NO_SLOTS),
    (Broken::Rcu(Rcu::SlotOfThread), NO_SLOTS),
    (Broken::Rcu(Rcu::VouchTokenRelaxed), KEPT),
    (Broken::Rcu(Rcu::VouchRelaxed), KEPT),
    (Broken::Rcu(Rcu::OrderedRelaxed), KEPT),
    (Broken::Rcu(Rcu::KindRelaxed), KEPT),
    (Broken::Rcu(Rcu::VouchInRegion), "torture protects nothing within a region"),
    (Broken::Rcu(Rcu::FencedWhenBlocked), NARROW),
    (Broken::Rcu(Rcu::CompletedPastVouched), NARROW),
    (Broken::Rcu(Rcu::SilentOwn), "no writer of torture polls within its own region"),
    (Broken::Rcu(Rcu::BackAtOnce), NARROW),
    (Broken::Rcu(Rcu::FenceFromBefore), "on x86-64 the read-modify-write that starts a token is a fence"),
    (Broken::Rcu(Rcu::TokenBeforeFence), NO_HANDLERS),
    (Broken::Rcu(Rcu::HandlerNotBack), NO_HANDLERS),
    (Broken::Rcu(Rcu::LeftEarly), "torture calls no barrier"),
    (Broken::Rcu(Rcu::LinkTagInSlot), LINKS),
    (Broken::Rcu(Rcu::LinkTagIgnored), LINKS),
    (Broken::Rcu(Rcu::QsbrLoadRelaxed), KEPT),
    (Broken::Rcu(Rcu::QsbrStoreRelaxed), KEPT),
    (Broken::Rcu(Rcu::OfflineRelaxed), KEPT),
    (
        Broken::Rcu(Rcu::RegisterNoFence),
        "only some nanoseconds pass from the last read-modify-write of a registration to the first load, fewer than \
         from an unlink to a scan",
    ),
    (Broken::Rcu(Rcu::UnregisterRelaxed), KEPT),
    (Broken::Rcu(Rcu::ClaimRelaxed), KEPT),
    (Broken::Rcu(Rcu::SlotsUnseen), KEPT),
    (Broken::Rcu(Rcu::ClaimedRelaxed), KEPT),
    (Broken::Rcu(Rcu::GroupRelaxed), KEPT),
    (Broken::Rcu(Rcu::GroupCleared), "torture has fewer readers than a registry without groups has room for"),
    (Broken::Rcu(Rcu::BlocksRelaxed), KEPT),
    (Broken::Rcu(Rcu::CountRelaxed), KEPT),
    (Broken::Rcu(Rcu::StartRelaxed), KEPT),
    (Broken::Rcu(Rcu::FencedRelaxed), KEPT),
    (Broken::Rcu(Rcu::ListRelaxed), KEPT),
    (Broken::Rcu(Rcu::LookedRelaxed), KEPT),
    (Broken::Rcu(Rcu::EndRelaxed), KEPT),
    (
        Broken::Rcu(Rcu::EndedUnseen),
        "an object would have to look for its domain in the few instructions in which the last handle is dropped",
    ),
    (
        Broken::Rcu(Rcu::WriterNoFence),
        "the read-modify-write that starts the token is a full fence on x86-64",
    ),
    (
        Broken::Rcu(Rcu::CounterAfterFence),
        "a reader and two writers have to run at the same moment, on three CPUs",
    ),
    (Broken::Rcu(Rcu::FoundRelaxed), KEPT),
    (Broken::Rcu(Rcu::ScanRelaxed), KEPT),
    (Broken::Rcu(Rcu::HazardScanRelaxed), KEPT),
    (Broken::Rcu(Rcu::CompletedRelaxed), KEPT),
    (Broken::Rcu(Rcu::HandoverRelaxed), KEPT),
    (Broken::Rcu(Rcu::TakeUnseen), KEPT),
    (Broken::Rcu(Rcu::PushRelaxed), KEPT),
    (Broken::Rcu(Rcu::LinkRelaxed), KEPT),
    (Broken::Rcu(Rcu::StampedEarly), NO_QUEUES),
    (Broken::Rcu(Rcu::MergedEarly), NO_QUEUES),
    (Broken::Rcu(Rcu::PassedUnstamped), NO_QUEUES),
    (Broken::Rcu(Rcu::GapIgnored), NO_QUEUES),
    (Broken::Rcu(Rcu::ServedRelaxed), KEPT),
    (Broken::Rcu(Rcu::PushUntold), NO_QUEUES),
    (Broken::Rcu(Rcu::RoomRelaxed), KEPT),
    (Broken::Rcu(Rcu::TakenRelaxed), KEPT),
    (Broken::Rcu(Rcu::LastHandleRelaxed), KEPT),
    (Broken::Rcu(Rcu::SubmitUnfenced), KEPT),
    (Broken::Rcu(Rcu::ClosedUnseen), NARROW),
    (Broken::Rcu(Rcu::GoneUnseen), NARROW),
    (Broken::Rcu(Rcu::ExitNoLight), NARROW),
    (Broken::Rcu(Rcu::AnswerUnseen), KEPT),
    (Broken::Rcu(Rcu::WakersRelaxed), KEPT),
    (Broken::Rcu(Rcu::RequestNoHeavy), NARROW),
    (Broken::Rcu(Rcu::RequestNotPassedOn), NARROW),
    (Broken::Rcu(Rcu::AdoptByStore), NARROW),
    (Broken::Rcu(Rcu::WordLost), NARROW),
    (
        Broken::Rcu(Rcu::ShareNotPassedOn),
        "fewer futures wait at a time than one leaving reader wakes; a test of the library catches it",
    ),
    (Broken::Rcu(Rcu::ShareOwedLost), "no waker polls its future in place; a test of the library catches it"),
    (
        Broken::Rcu(Rcu::NestedNoFence),
        "a signal would have to come between two instructions, and its delivery is a full fence on x86-64",
    ),
    (Broken::Rcu(Rcu::ReportByStore), NARROW),
    (Broken::Rcu(Rcu::BoostNoHeavy), NARROW),
    (Broken::Rcu(Rcu::BoostCloseHasty), NARROW),
    (Broken::Rcu(Rcu::BoostWordRelaxed), KEPT),
    (Broken::Table(Table::FirstLoadRelaxed), KEPT),
    (Broken::Table(Table::ReloadRelaxed), KEPT),
    (Broken::Table(Table::TagLoadRelaxed), KEPT),
    (Broken::Table(Table::EntryLoadRelaxed), KEPT),
    (Broken::Table(Table::EntryStoreRelaxed), KEPT),
    (Broken::Table(Table::StopAtHole), KEPT),
    (Broken::Table(Table::ArrayNotPinned), "torture's readers of tables are bound to them"),
    (Broken::Table(Table::VouchedOnce), "no comparison in torture takes its reader offline"),
    (Broken::Table(Table::EntryNotPinned), NARROW),
    (Broken::Table(Table::ValueNotConfirmed), "torture's tables own their values"),
    (Broken::Table(Table::IterTakesAll), "torture shrinks no table; tests of the library do"),
];

impl Broken {
    /// All variants.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_rcu = Rcu::ALL.iter().copied().map(Self::Rcu);
        of_rcu.chain(Table::ALL.iter().copied().map(Self::Table))
    }

    /// Breaks the library of this process with the variant of this name. Refuses one that only models catch.
    pub(crate) fn select(name: &str) -> Result<Self, Stop> {
        let broken = Self::all().find(|broken| broken.to_string() == name);
        let broken = broken
            .ok_or_else(|| Stop::usage(format!("there is no broken variant '{name}': see --list-busted")))?;
        if let Some(reason) = broken.reason() {
            return Err(Stop::usage(format!(
                "torture does not catch {broken}: {reason}. Only the models under loom do: CONTRIBUTING.md has their commands"
            )));
        }
        let selected = match broken {
            Self::Rcu(variant) => rcu::select(variant),
            Self::Table(variant) => table::select(variant),
        };
        if selected {
            Ok(broken)
        } else {
            Err(Stop::usage(format!(
                "this build has no broken variants; build one in a separate folder with RUSTFLAGS='--cfg stillpoint_busted' \
                 CARGO_TARGET_DIR=target/busted cargo run --release -- torture --busted {name}"
            )))
        }
    }

    /// A description of the variant, in one sentence.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Rcu(variant) => variant.describe(),
            Self::Table(variant) => variant.describe(),
        }
    }

    /// The checkers that catch the variant.
    fn checkers(self) -> &'static str {
        match (CAUGHT_BY_TORTURE.contains(&self), CAUGHT_BY_MIX.contains(&self)) {
            (true, true) => "torture, mix, loom",
            (true, false) => "torture, loom",
            (false, true) => "mix, loom",
            (false, false) => "only loom",
        }
    }

    /// The last sentence of a run that caught the variant.
    pub(crate) fn caught(self) -> String {
        format!("Torture caught the broken variant {self}, as it should.")
    }

    /// The reason if torture does not catch the variant.
    fn reason(self) -> Option<&'static str> {
        CAUGHT_ONLY_BY_LOOM.iter().find(|(broken, _)| *broken == self).map(|&(_, reason)| reason)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rcu(variant) => variant.name(),
            Self::Table(variant) => variant.name(),
        })
    }
}

/// In a build with broken variants, refuses an environment that names none of the variants that programs may choose.
pub fn check_environment() -> Result<(), Stop> {
    if !cfg!(stillpoint_busted) {
        return Ok(());
    }
    let of_rcu = rcu::from_environment().map_err(Stop::usage)?;
    let of_table = table::from_environment().map_err(Stop::usage)?;
    match std::env::var_os("STILLPOINT_BUSTED") {
        Some(_) if of_rcu.is_none() && of_table.is_none() => {
            Err(Stop::usage("STILLPOINT_BUSTED: this program has only the variants of rcu and table"))
        }
        _ => Ok(()),
    }
}

/// Prints the broken variants, the checkers that catch each, and why torture does not catch some.
pub(crate) fn list() {
    for broken in Broken::all() {
        let reason = broken.reason().map_or(String::new(), |reason| format!(" Not by torture: {reason}."));
        let name = broken.to_string();
        say(format!("{name:<28} {:<19} {}{reason}", broken.checkers(), broken.describe()));
    }
    say("");
    say(
        "torture: torture --busted NAME. mix: the library's test `mix`. loom: the library's models. CONTRIBUTING.md has their commands.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_one_place_in_the_lists() {
        for broken in Broken::all() {
            let by_torture = CAUGHT_BY_TORTURE.iter().filter(|&&listed| listed == broken).count();
            let by_loom = CAUGHT_ONLY_BY_LOOM.iter().filter(|(listed, _)| *listed == broken).count();
            assert_eq!(by_torture + by_loom, 1, "{broken}");
        }
    }

    #[test]
    fn the_test_mix_has_the_variants_that_it_catches() {
        let test = include_str!("../../stillpoint/tests/mix/controls.rs");
        let (_, list) = test.split_once("const VARIANTS: &[&str] = &[").unwrap();
        let list = list.split(']').next().unwrap();
        let names = CAUGHT_BY_MIX.iter().map(|broken| format!("\"{broken}\""));
        assert_eq!(list.split(", ").collect::<Vec<_>>(), names.collect::<Vec<_>>());
    }

    #[test]
    fn no_two_variants_have_the_same_name() {
        let mut names: Vec<String> = Broken::all().map(|broken| broken.to_string()).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
