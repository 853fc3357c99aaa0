//! Links on their own: tags, pointees, what is freed and when.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::rcu::{Domain, Reader, Region};
use stillpoint_sys::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

/// Counts its drops.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counter() -> (Counted, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (Counted(Arc::clone(&count)), count)
}

fn drops(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

#[test]
fn a_tag_has_as_many_bits_as_the_alignment_leaves() {
    #[repr(align(16))]
    struct Wide(#[expect(dead_code, reason = "only its address is used")] u8);

    let narrow = Owned::new(1_u8).with_tag(usize::MAX);
    assert_eq!((narrow.tag(), *narrow), (0, 1));
    let wide = Owned::new(Wide(1)).with_tag(usize::MAX);
    assert_eq!(wide.tag(), 15);
    assert_eq!(wide.with_tag(16).tag(), 0);
    assert_eq!(Owned::<[u8]>::init(vec![1]).with_tag(usize::MAX).tag(), align_of::<usize>() - 1);
    assert_eq!(Shared::<u64>::null().with_tag(9).tag(), 1);
}

#[test]
fn slices_of_any_length_and_alignment_come_back_as_they_were() {
    #[repr(align(64))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Wide(u8);

    for len in [0, 1, 2, 7, 100] {
        let bytes: Vec<u8> = (0..len).collect();
        assert_eq!(*Owned::<[u8]>::init(bytes.clone()), bytes);
        let words: Vec<u64> = bytes.iter().map(|&byte| byte.into()).collect();
        assert_eq!(*Owned::from(words.clone()), words);
        let wide: Vec<Wide> = bytes.iter().copied().map(Wide).collect();
        let owned = Owned::from(wide.clone());
        assert_eq!(*owned, wide);
        assert_eq!(owned.as_ptr().addr() % 64, 0);
        assert_eq!(Owned::from(vec![(); len.into()]).len(), len.into());
    }
}

#[test]
fn elements_are_dropped_once_also_when_one_panics() {
    struct Panics {
        _counted: Counted,
        panics: bool,
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.panics, "the test lets this destructor panic");
        }
    }

    let (counted, count) = counter();
    drop(Owned::from(vec![counted.clone(), counted.clone()]));
    assert_eq!(drops(&count), 2);
    let elements = [false, true, false].map(|panics| Panics { _counted: counted.clone(), panics });
    let owned = Owned::from(Vec::from(elements));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owned))).expect_err("one panics");
    assert_eq!(drops(&count), 5);
}

#[test]
fn exchanges_see_the_tag_and_hand_back_what_was_not_linked() {
    let (counted, count) = counter();
    let link = Atomic::from(Owned::new(counted.clone()).with_tag(1));
    let shared = link.load(Acquire, &Unprotected);
    let error = link
        .compare_exchange(shared.with_tag(0), Owned::new(counted.clone()), AcqRel, Acquire, &Unprotected)
        .expect_err("the tag differs");
    assert_eq!(error.found, shared);
    drop(error.new);
    assert_eq!(drops(&count), 1);
    let linked = link.compare_exchange(shared, Shared::null().with_tag(2), AcqRel, Acquire, &Unprotected);
    assert_eq!(linked.expect("the whole word is the same").tag(), 2);
    // SAFETY: no other code has it.
    drop(unsafe { shared.into_owned() });
    assert_eq!(drops(&count), 2);
    link.store(Owned::new(counted), Release);
    while link.compare_exchange_weak(Shared::null(), Shared::null(), AcqRel, Relaxed, &Unprotected).is_ok() {}
    // SAFETY: no other code has it.
    assert!(unsafe { link.into_owned() }.is_some());
    assert_eq!(drops(&count), 3);
}

/// Loads the link in the region, and reads its object.
fn read<R: Region>(link: &Atomic<u32>, region: &R) -> u32 {
    // SAFETY: what the tests link is retired to the region's domain.
    *unsafe { link.load(Acquire, region).as_ref() }.expect("it is not null")
}

#[test]
fn each_reader_holds_up_what_it_has() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
    let link = Atomic::new(1);
    let mut replace = |value| {
        let old = link.swap(Owned::new(value), AcqRel, &Unprotected);
        // SAFETY: it was unlinked here, and its readers are of the domain.
        reclaimer.retire(unsafe { old.into_retired(&domain) }).expect("there is room");
        // A batch is fenced when the one before it is over, and held objects take turns with others.
        (0..4).map(|_| reclaimer.poll()).sum::<usize>()
    };
    let reader = domain.reader();
    let guard = reader.pin();
    assert_eq!((read(&link, &guard), replace(2)), (1, 0));
    drop(guard);
    assert_eq!(replace(3), 2);
    let mut qsbr = domain.qsbr_reader();
    assert_eq!((read(&link, &qsbr), replace(4)), (3, 0));
    qsbr.quiescent();
    drop(qsbr);
    assert_eq!(replace(5), 2);
    let mut protected = link.protect(&reader);
    assert_eq!(replace(6), 0);
    // SAFETY: the link is part of no object, and the slot is set.
    assert_eq!(unsafe { protected.as_ref() }, Some(&5));
    protected.load(&link);
    assert_eq!(replace(7), 1, "what it held before is freed, and what it holds now is not");
    drop(protected);
    assert_eq!(replace(8), 2);
    // SAFETY: no other code has it.
    drop(unsafe { link.into_owned() });
}

#[test]
fn a_slot_holds_the_address_without_the_tag() {
    let domain = Domain::new();
    let reader = domain.reader();
    let link = Atomic::from(Owned::new(1_u64).with_tag(5));
    let protected = link.protect(&reader);
    assert_eq!((protected.tag(), protected.is_null()), (5, false));
    let old = link.swap(Shared::null().with_tag(3), AcqRel, &Unprotected);
    // SAFETY: it was unlinked here, and its readers are of the domain.
    let old = unsafe { old.into_retired(&domain) }.try_free().expect_err("it is protected");
    drop(protected);
    old.try_free().expect("no reader has it");
    let protected = link.protect(&reader);
    assert_eq!((protected.tag(), protected.is_null()), (3, true));
}

/// In a walk hand over hand, each value that is not null uses one slot, and gives it back.
#[test]
fn slots_change_places_and_are_given_back() {
    fn slots(reader: &Reader) -> usize {
        reader.record().hazards().filter(|hazard| !hazard.load(Relaxed).is_null()).count()
    }

    let domain = Domain::new();
    let reader = domain.reader();
    let links: Vec<Atomic<Cell<usize>>> = (0..10).map(|at| Atomic::new(Cell::new(at))).collect();
    let (mut front, mut back) = (ProtectedLink::null(&reader), ProtectedLink::null(&reader));
    for link in &links {
        front.load(link);
        assert_eq!(front.shared(), link.load(Relaxed, &Unprotected));
        mem::swap(&mut front, &mut back);
    }
    assert_eq!(slots(&reader), 2);
    front.load(&Atomic::null());
    assert_eq!(slots(&reader), 1);
    let all: Vec<_> = links.iter().map(|link| link.protect(&reader)).collect();
    assert_eq!(slots(&reader), 11);
    drop((all, front, back));
    assert_eq!(slots(&reader), 0);
    // SAFETY: no other code has them.
    links.into_iter().for_each(|link| drop(unsafe { link.into_owned() }));
}

#[test]
fn any_pointee_is_retired_also_without_room() {
    let domain = Domain::builder().max_pending(2).build().expect("the default mode is always available");
    let mut reclaimer = domain.reclaimer();
    let (counted, count) = counter();
    let shared = Arc::new(counted.clone());
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..2 {
        let slice = Owned::from(vec![counted.clone(), counted.clone()]).into_shared(&Unprotected);
        let arc = Owned::new(Arc::clone(&shared)).into_shared(&Unprotected);
        // SAFETY: no other code ever had them.
        unsafe {
            slice.retire(&mut reclaimer);
            arc.retire(&mut reclaimer);
        }
    }
    assert_eq!((reclaimer.poll(), domain.stats().beyond_limits), (0, 2));
    drop(guard);
    reclaimer.flush().expect("no reader is in the way");
    assert_eq!((drops(&count), Arc::strong_count(&shared)), (4, 1));
}
