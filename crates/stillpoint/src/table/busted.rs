//! Deliberately broken variants of the table, as [`crate::busted`] has them of the reclamation: controls for the
//! models. Chosen by the environment variable `STILLPOINT_BUSTED_TABLE` in builds with `--cfg stillpoint_busted`.

use crate::sync::atomic::Ordering;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// A protected load does not load its word a second time.
    NoReload,
    /// A protected load has no light fence between slot and reload.
    NoLight,
    /// A protected load begins with a relaxed load.
    FirstLoadRelaxed,
    /// A protected load confirms with a relaxed reload.
    ReloadRelaxed,
    /// The mover leaves the word in the old bucket.
    OldWordKept,
    /// The mover marks the old bucket as moved after it has cleared it.
    MarkLate,
    /// A reader does not follow the mark of a moved bucket.
    IgnoreMark,
    /// The next array is read without a slot that pins it.
    NextNotPinned,
    /// The tags are loaded relaxed, not acquire.
    TagLoadRelaxed,
    /// Readers in a region load the word relaxed, not acquire.
    EntryLoadRelaxed,
    /// An entry is linked by a relaxed store.
    EntryStoreRelaxed,
    /// An entry is compared with the key before the load is confirmed.
    CompareFirst,
}

impl Variant {
    const ALL: [(Self, &str); 12] = [
        (Self::NoReload, "no-reload"),
        (Self::NoLight, "no-light"),
        (Self::FirstLoadRelaxed, "first-load-relaxed"),
        (Self::ReloadRelaxed, "reload-relaxed"),
        (Self::OldWordKept, "old-word-kept"),
        (Self::MarkLate, "mark-late"),
        (Self::IgnoreMark, "ignore-mark"),
        (Self::NextNotPinned, "next-not-pinned"),
        (Self::TagLoadRelaxed, "tag-load-relaxed"),
        (Self::EntryLoadRelaxed, "entry-load-relaxed"),
        (Self::EntryStoreRelaxed, "entry-store-relaxed"),
        (Self::CompareFirst, "compare-first"),
    ];
}

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
    static CHOSEN: std::sync::OnceLock<Option<Variant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("STILLPOINT_BUSTED_TABLE").ok()?;
        let variant = Variant::ALL.iter().find(|(_, known)| *known == name).map(|&(variant, _)| variant);
        Some(variant.unwrap_or_else(|| panic!("STILLPOINT_BUSTED_TABLE: there is no variant `{name}`")))
    })
}
