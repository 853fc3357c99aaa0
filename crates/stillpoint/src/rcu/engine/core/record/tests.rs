//! What a record gives to its holder and shows to scans.

use super::*;

#[test]
fn a_record_fills_its_two_lines() {
    assert_eq!(size_of::<Record>(), 128);
}

#[test]
fn there_is_always_a_free_hazard() {
    let record = Record::default();
    let mut object = 0u64;
    for taken in 0..100 {
        assert_eq!(record.hazards().filter(|slot| !slot.load(Ordering::Relaxed).is_null()).count(), taken);
        set_hazard(&record.free_hazard(), (&raw mut object).cast());
    }
    record.leave();
    assert!(record.hazards().all(|slot| slot.load(Ordering::Relaxed).is_null()));
}

#[test]
fn what_is_given_back_is_handed_out_again() {
    let record = Record::default();
    record.adopt(ReaderKind::Guard, ReaderFence::Light, None);
    let mut object = 0u64;
    let mut taken = Vec::new();
    for turn in 0..1000 {
        let slot = record.free_hazard();
        assert!(slot.load(Ordering::Relaxed).is_null());
        set_hazard(&slot, (&raw mut object).cast());
        taken.push(slot);
        if turn % 3 != 0 {
            // SAFETY: it came from `free_hazard`, and is not used any more.
            unsafe { taken.swap_remove(turn * 7 % taken.len()).release() };
        }
    }
    let set = record.hazards().filter(|slot| !slot.load(Ordering::Relaxed).is_null()).count();
    assert_eq!(set, taken.len());
    assert!(record.hazards().count() <= taken.len() + EXCLUSIVE_HAZARDS + BLOCK_HAZARDS + 2);

    // The next holder has all slots.
    record.leave();
    record.adopt(ReaderKind::Guard, ReaderFence::Light, None);
    let slots = record.hazards().count();
    for _ in EXCLUSIVE_HAZARDS..slots {
        set_hazard(&record.free_hazard(), (&raw mut object).cast());
    }
    assert_eq!(record.hazards().count(), slots);
}

/// A reader that can be boosted in a symmetric domain fences before it looks at requests, in the child of a `fork`, too.
#[test]
fn a_reset_forgets_requests_and_not_that_the_reader_fences_itself() {
    for boost_state in [None, crate::rcu::engine::boost::own()] {
        let fences = boost_state.is_some();
        let record = Record::default();
        record.adopt(ReaderKind::Guard, ReaderFence::Full, boost_state);
        record.ask_for_attention();
        record.request();
        record.tell_boosted();
        // SAFETY: no other thread uses the record.
        unsafe { record.reset_after_fork() };
        assert_eq!((record.fences(), record.wants_attention()), (fences, fences));
        assert!(!record.take_request() && !record.take_told());
    }
}

/// The next request counts as the first one again, so that its caller issues a fence.
#[test]
fn what_is_withdrawn_is_the_request_of_futures_alone() {
    let record = Record::default();
    record.adopt(ReaderKind::Guard, ReaderFence::Full, None);
    assert!(record.request() && !record.request());
    record.tell_boosted();
    record.withdraw_request();
    assert!(!record.take_request() && record.take_told());
    record.ask_for_attention();
    assert!(record.request());
    record.withdraw_request();
    assert!(record.take_request(), "a thread waits, too");
}

/// In the child of a `fork`, a record that is claimed and not adopted yet is not attributed to its last thread.
#[test]
fn a_record_without_a_holder_is_nobodys() {
    let record = Record::default();
    record.adopt(ReaderKind::Guard, ReaderFence::Light, None);
    assert!(record.is_mine());
    record.abandon();
    assert!(!record.is_mine() && record.tid() == 0);
}

/// A scan sees the slots of whoever has exclusive use, and nobody else gets them.
#[test]
fn exclusive_hazards_are_neither_free_nor_unseen() {
    let record = Record::default();
    record.adopt(ReaderKind::Guard, ReaderFence::Light, None);
    let exclusive = record.exclusive_hazards().map(ptr::from_ref);
    let mut object = 0u64;
    for _ in 0..20 {
        let free = record.free_hazard();
        assert!(!exclusive.contains(&ptr::from_ref(&*free)));
        set_hazard(&free, (&raw mut object).cast());
    }
    assert!(exclusive.contains(&ptr::from_ref(&*record.exclusive_hazard())));
    assert!(exclusive.iter().all(|one| record.hazards().filter(|slot| ptr::eq(*slot, *one)).count() == 1));
    set_hazard(&record.exclusive_hazard(), (&raw mut object).cast());
    // SAFETY: it is not used any more.
    unsafe { record.exclusive_hazard().release() };
    assert!(!exclusive.contains(&ptr::from_ref(&*record.free_hazard())));
}

/// Neither the holder of a record nor a scan pays for the slots of a crowd that has gone.
#[test]
fn blocks_are_given_back() {
    const MANY: usize = if cfg!(miri) { 100 } else { 10_000 };
    let record = Record::default();
    let mut object = 0u64;
    let mut crowd = || {
        let slot = |_| {
            let slot = record.free_hazard();
            set_hazard(&slot, (&raw mut object).cast());
            slot
        };
        (0..MANY).map(slot).collect::<Vec<_>>()
    };
    let least = 1 + EXCLUSIVE_HAZARDS + INLINE_HAZARDS + BLOCK_HAZARDS;
    let adopt = || work::steps_of(|| record.adopt(ReaderKind::Guard, ReaderFence::Light, None)).0;
    adopt();
    for is_reversed in [false, true] {
        let mut slots = crowd();
        assert!(record.hazards().count() >= MANY);
        if is_reversed {
            slots.reverse();
        }
        let (inline, others) = slots.split_at(if is_reversed { 0 } else { 3 });
        // SAFETY: they came from `free_hazard`, and are not used any more.
        others.iter().for_each(|slot| unsafe { slot.release() });
        assert_eq!(record.hazards().count(), least);
        let set = record.hazards().filter(|slot| !slot.load(Ordering::Relaxed).is_null()).count();
        assert_eq!(set, inline.len(), "those in the record stay");
        // SAFETY: as above.
        inline.iter().for_each(|slot| unsafe { slot.release() });
    }
    let forgotten = crowd();
    let slots = record.hazards().count();
    record.leave();
    assert_eq!(record.hazards().count(), least);
    assert!(adopt() <= least, "all are free, and were not listed one by one");
    let sorted = |slots: Vec<Slot<'_>>| {
        let mut addresses: Vec<_> = slots.iter().map(|slot| slot.hazard).collect();
        addresses.sort_unstable();
        addresses
    };
    assert_eq!(sorted(crowd()), sorted(forgotten), "the blocks are used again");
    assert_eq!(record.hazards().count(), slots);
}
