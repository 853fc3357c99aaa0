//! Deliberately broken variants of the table, like those of the reclamation in [`crate::busted`]: controls for the
//! models and for torture. In builds with `--cfg stillpoint_busted`, [`select`] or
//! `STILLPOINT_BUSTED=table:NAME` chooses one.

stillpoint_sys::variants! {
    for programs, "table";
    NoReload = "no-reload": "A protected load does not load its word a second time.",
    NoLight = "no-light": "A protected load has no light fence between slot and reload.",
    FirstLoadRelaxed = "first-load-relaxed": "A protected load begins with a relaxed load.",
    ReloadRelaxed = "reload-relaxed": "A protected load confirms with a relaxed reload.",
    OldWordKept = "old-word-kept": "The mover leaves the word in the old bucket.",
    MarkLate = "mark-late": "The mover marks the old bucket as moved after it has cleared it.",
    IgnoreMark = "ignore-mark": "A reader does not follow the mark of a moved bucket.",
    NextNotPinned = "next-not-pinned": "The next array is read without being pinned in a slot.",
    EntryNotPinned = "entry-not-pinned": "A write that returns its entry does not pin it under the lock.",
    ArrayNotPinned = "array-not-pinned": "A lookup of a reader that is not bound does not pin the array.",
    TagLoadRelaxed = "tag-load-relaxed": "The tags are loaded with relaxed ordering, not acquire.",
    EntryLoadRelaxed = "entry-load-relaxed": "Readers in a region load the word with relaxed ordering, not acquire.",
    EntryStoreRelaxed = "entry-store-relaxed": "An entry is linked by a relaxed store.",
    StopAtHole = "stop-at-hole": "The search for the index of an entry stops at a chunk that the thread does not see.",
    IterTakesAll = "iter-takes-all": "An iteration through a smaller array takes entries of other chains, too.",
    VouchedOnce = "vouched-once": "A protected lookup does not vouch again after `Eq`, which may have taken the reader away.",
    CompareFirst = "compare-first": "An entry is compared with the key before the load is confirmed.",
    FewForGood = "few-for-good": "A writer that has locked a stripe of a small table does not look again whether the table is large now.",
    FewKept = "few-kept": "The writer that makes a small table a large one goes on under the stripe that it had.",
    FewUnlocked = "few-unlocked": "A small table becomes a large one without the locks of the stripes that it had.",
    ValueNotConfirmed = "value-not-confirmed": "A lookup that protects what a value points to does not load the word again.",
}
