use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::{raw, Domain};

use super::object;
use crate::census::Census;
use crate::eager;

#[test]
fn an_object_is_destroyed_when_its_slot_is_released() {
    let (domain, census) = (Domain::new(), Census::default());
    let (reader, mut reclaimer) = (domain.reader(), eager(&domain));
    let mut slots = Vec::new();
    // More objects than the record has slots.
    for _ in 0..20 {
        let (address, retired) = object(&census);
        let link = AtomicPtr::new(address.as_ptr());
        let (found, slot) = raw::protect(&reader, &link).expect("it is not null");
        link.store(ptr::null_mut(), Ordering::Release);
        assert!(raw::protect(&reader, &link).is_none());
        // SAFETY: it is linked no more.
        unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
        slots.push((found, slot));
    }
    assert_eq!((reclaimer.poll(), reclaimer.pending()), (0, 20));
    for (number, (found, slot)) in slots.into_iter().enumerate() {
        // SAFETY: the slot holds it.
        unsafe { found.as_ref() }.verify();
        // SAFETY: it is the address of this slot.
        let slot = unsafe { raw::Slot::from_raw(slot.into_raw()) };
        // SAFETY: this is the reader's thread.
        unsafe { slot.release() };
        assert_eq!((reclaimer.poll(), census.freed()), (1, number + 1));
    }
    assert_eq!((domain.stats().retired, domain.stats().freed), (20, 20));
}

/// A forgotten slot holds its object until the reader is dropped.
#[test]
fn a_reader_that_goes_lets_go_of_forgotten_slots() {
    let (domain, census) = (Domain::new(), Census::default());
    let (reader, mut reclaimer) = (domain.reader(), eager(&domain));
    let (address, retired) = object(&census);
    let _ = raw::protect(&reader, &AtomicPtr::new(address.as_ptr())).expect("it is not null");
    // SAFETY: it is known only here.
    unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    drop(reader);
    assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
}

#[test]
fn what_is_refused_is_handed_back() {
    let census = Census::default();
    let domain = Domain::builder().max_pending(2).build().expect("the default mode is always available");
    let reader = domain.reader();
    let guard = reader.pin();
    let mut full = domain.reclaimer_builder().max_pending(1).fence_interval(Duration::ZERO).build();
    let background = domain.background();
    let handle = background.retire_handle();
    let retire = |raw: raw::Object| {
        // SAFETY: it is known only here.
        unsafe { handle.retire_raw(raw) }.expect_err("there is no room")
    };
    // SAFETY: they are known only here.
    unsafe {
        full.retire_raw(object(&census).1).expect("there is room for one");
        let refused = full.retire_raw(object(&census).1).expect_err("but not for two");
        assert_eq!(refused.kind, RetireErrorKind::Full);
        handle.retire_raw(refused.object).expect("there is room elsewhere");
    }
    let refused = retire(object(&census).1);
    assert_eq!((refused.kind, domain.stats().handed_back), (RetireErrorKind::DomainFull, 2));
    drop(background);
    let refused = retire(refused.object);
    assert_eq!((refused.kind, census.freed()), (RetireErrorKind::Closed, 0));
    drop(guard);
    assert_eq!((full.poll(), full.poll()), (1, 1), "its own, and what was left to the domain");
    // SAFETY: it was handed back.
    unsafe { full.retire_raw(refused.object) }.expect("there is room again");
    assert_eq!((full.poll(), census.freed(), census.alive()), (1, 3, 0));
}

/// A destructor panics in a retirement that frees objects to get room. The retired object goes to the domain, and
/// nothing is lost.
#[test]
fn a_panic_in_a_retirement_leaves_the_object_to_the_domain() {
    unsafe extern "C-unwind" fn panics(_: NonNull<()>, context: *const ()) {
        // SAFETY: the test keeps it.
        let count = unsafe { &*context.cast::<Cell<u32>>() };
        count.set(count.get() + 1);
        panic!("as it is to");
    }
    let (domain, census, count) = (Domain::new(), Census::default(), Cell::new(0_u32));
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    let address = NonNull::from(&count).cast();
    let context = ptr::from_ref(&count).cast();
    // SAFETY: it stays to the end of the test, on one thread.
    unsafe { reclaimer.retire_raw(raw::Object { address, bytes: 1, context, destroy: panics }) }
        .expect("there is room");
    // SAFETY: it is known only here.
    let retire = || unsafe { reclaimer.retire_raw(object(&census).1) };
    assert!(catch_unwind(AssertUnwindSafe(retire)).is_err());
    assert_eq!((count.get(), census.freed(), census.alive()), (1, 0, 1));
    assert_eq!((eager(&domain).poll(), census.freed()), (1, 1));
}

/// A closure that a guard defers runs once, after the guard, with the next poll or wait of any reclaimer.
#[test]
fn a_deferred_call_waits_for_the_guard() {
    let domain = Domain::builder().max_pending(10).build().expect("the default mode is always available");
    let called = Arc::new(AtomicUsize::new(0));
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..100 {
        let called = Arc::clone(&called);
        guard.defer(move || {
            called.fetch_add(1, Ordering::Relaxed);
        });
    }
    let stats = domain.stats();
    assert_eq!((stats.pending, stats.retired, stats.beyond_limits), (100, 100, 90));
    let mut reclaimer = eager(&domain);
    assert_eq!((reclaimer.poll(), called.load(Ordering::Relaxed)), (0, 0));
    drop(guard);
    domain.synchronize().expect("nothing is in the way");
    while reclaimer.poll() > 0 {}
    assert_eq!((called.load(Ordering::Relaxed), domain.stats().pending), (100, 0));

    let later = Arc::clone(&called);
    reader.pin().defer(move || {
        later.fetch_add(1, Ordering::Relaxed);
    });
    drop((reclaimer, reader, domain));
    assert_eq!(called.load(Ordering::Relaxed), 101, "the last handle");
}

#[test]
fn numbers_are_tokens_only_of_what_was_started() {
    let domain = Domain::new();
    let (first, second) = (domain.start(), domain.start());
    assert!(raw::number_of(first) < raw::number_of(second));
    for token in [first, second] {
        assert_eq!(raw::token_of(&domain, raw::number_of(token)), Some(token));
    }
    for number in [0, raw::number_of(second) + 1, u64::MAX] {
        assert_eq!(raw::token_of(&domain, number), None);
    }
    let reader = domain.reader();
    let guard = reader.pin();
    let later = raw::number_of(domain.start());
    let token = raw::token_of(&domain, later).expect("it was started");
    assert!(!domain.check(token));
    drop(guard);
    assert!(domain.check(token));
}
