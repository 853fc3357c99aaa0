//! Readers in other languages: these tests use offsets as a C header does.

use std::ptr;
use std::sync::atomic::{compiler_fence, fence, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use stillpoint::rcu::raw::{self, offsets, states, Parts, Slot};
use stillpoint::rcu::Domain;

use super::object;
use crate::census::Census;
use crate::eager;
use crate::futures::{poll, Alarm};
use crate::modes::modes;

/// The fields of a record.
struct Fields<'r> {
    token: &'r AtomicU64,
    state: &'r AtomicU64,
    attention: &'r AtomicU32,
    hazard: &'r AtomicPtr<()>,
}

impl<'r> Fields<'r> {
    fn of(parts: Parts<'r>) -> Self {
        let record = parts.record();
        // SAFETY: the fields are there as long as the domain, which the reader holds.
        unsafe {
            Self {
                token: parts.token().cast().as_ref(),
                state: record.add(offsets::STATE).cast().as_ref(),
                attention: record.add(offsets::ATTENTION).cast().as_ref(),
                hazard: record.add(offsets::HAZARD).cast().as_ref(),
            }
        }
    }
}

fn barrier(parts: Parts<'_>) {
    if parts.needs_full_fence() || cfg!(miri) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

fn pin(parts: Parts<'_>) {
    let fields = Fields::of(parts);
    if fields.state.load(Ordering::Relaxed).wrapping_sub(1) as i64 >= -2 {
        // SAFETY: tests call it on the reader's thread.
        unsafe { parts.come_back() };
    }
    fields.state.store(fields.token.load(Ordering::Acquire), Ordering::Release);
    barrier(parts);
}

fn unpin(parts: Parts<'_>) {
    let fields = Fields::of(parts);
    fields.state.store(fields.token.load(Ordering::Acquire) | states::IDLE, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    if fields.attention.load(Ordering::Relaxed) != 0 {
        // SAFETY: tests call it on the reader's thread.
        unsafe { parts.answer() };
    }
}

fn quiescent(parts: Parts<'_>) {
    let fields = Fields::of(parts);
    let token = fields.token.load(Ordering::Acquire);
    if token != fields.state.load(Ordering::Relaxed) {
        fields.state.store(token, Ordering::Release);
    }
    compiler_fence(Ordering::SeqCst);
    if fields.attention.load(Ordering::Relaxed) != 0 {
        // SAFETY: tests call it on the reader's thread.
        unsafe { parts.answer() };
    }
}

#[test]
fn regions_by_offsets_hold_up_and_wake() {
    for mode in modes() {
        let domain = Domain::builder().fence(mode).build().expect("it was probed");
        let census = Census::default();
        let mut reclaimer = eager(&domain);
        let reader = domain.reader();
        let parts = Parts::of(&reader);
        assert!(parts.is_mine() && !parts.is_online());
        pin(parts);
        assert!(parts.is_online());
        // SAFETY: it is known only here.
        unsafe { reclaimer.retire_raw(object(&census).1) }.expect("there is room");
        assert_eq!(reclaimer.poll(), 0, "{mode}");
        let waiting = domain.clone();
        let waiter = std::thread::spawn(move || waiting.synchronize());
        std::thread::sleep(std::time::Duration::from_millis(2));
        unpin(parts);
        assert_eq!(waiter.join().expect("it does not panic"), Ok(()));
        reclaimer.poll();
        assert_eq!(census.freed(), 1, "{mode}");
        // Both kinds of readers in one domain.
        let guard = reader.pin();
        assert!(parts.is_online());
        drop(guard);
        assert!(!parts.is_online());
        // Nobody but the reader wakes a future, while a thread that waits also looks by itself.
        pin(parts);
        let (alarm, mut over) = (Alarm::new(), std::pin::pin!(domain.grace_period(domain.start())));
        assert!(poll(over.as_mut(), &alarm).is_pending());
        unpin(parts);
        alarm.wait_beyond(0);
        assert!(poll(over, &alarm).is_ready(), "{mode}");
    }
}

#[test]
fn quiescent_states_by_offsets_let_go() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let reader = domain.qsbr_reader();
    let parts = Parts::of_qsbr(&reader);
    for round in 0..3 {
        // SAFETY: it is known only here.
        unsafe { reclaimer.retire_raw(object(&census).1) }.expect("there is room");
        assert_eq!((reclaimer.poll(), census.freed()), (0, round));
        quiescent(parts);
        assert_eq!((reclaimer.poll(), census.freed()), (1, round + 1));
    }
    // SAFETY: this thread holds nothing.
    unsafe {
        parts.offline();
        parts.offline();
        assert!(!parts.is_online());
        reclaimer.retire_raw(object(&census).1).expect("there is room");
        assert_eq!((reclaimer.poll(), census.freed()), (1, 4));
        parts.online();
        parts.online();
    }
    assert!(parts.is_online());
    let token = domain.start();
    assert!(!domain.check(token));
    let is_theirs = std::thread::scope(|scope| scope.spawn(|| parts.is_mine()).join());
    assert!(!is_theirs.expect("it does not panic"));
}

#[test]
fn a_reader_comes_back_once_and_not_in_a_region() {
    let domain = Domain::new();
    let reader = domain.reader();
    let parts = Parts::of(&reader);
    let state = Fields::of(parts).state;
    let newest = || Fields::of(parts).token.load(Ordering::Relaxed) | states::IDLE;
    // What a reader finds: a new one, one that has interrupted a return, one of code that ends regions with 0, and one that has vouched.
    for found in [states::AWAY, states::IDLE, 0, states::IDLE | 1] {
        state.store(found, Ordering::Release);
        assert!(!parts.is_online());
        // SAFETY: this is the reader's thread.
        unsafe { parts.come_back() };
        assert_eq!(state.load(Ordering::Relaxed), newest(), "{found:#x}");
    }
    let guard = reader.pin();
    let before = state.load(Ordering::Relaxed);
    // SAFETY: this is the reader's thread.
    unsafe { parts.come_back() };
    assert_eq!(state.load(Ordering::Relaxed), before);
    assert!(!reader.offline());
    drop(guard);
    assert_eq!(state.load(Ordering::Relaxed), newest());
    assert!(reader.offline());
    assert_eq!(state.load(Ordering::Relaxed), states::AWAY);
}

/// A slot's word is at a fixed offset from the slot. It is here from the first to the last, and each load reports in it.
#[test]
fn a_slot_of_nobody_vouches_in_its_own_record() {
    let domain = Domain::new();
    let slot = Slot::of_nobody(&domain);
    // SAFETY: the slot is in a record, from whose address its own was made, and which is there as long as the domain.
    let state: &AtomicU64 =
        unsafe { slot.into_raw().byte_sub(offsets::HAZARD - offsets::STATE).cast().as_ref() };
    // SAFETY: the token is there as long as the domain.
    let token: &AtomicU64 = unsafe { Slot::token(&domain).cast().as_ref() };
    let vouches = || state.load(Ordering::Relaxed) == token.load(Ordering::Relaxed) | states::IDLE;
    assert!(vouches());
    let mut object = 7_u64;
    let link = AtomicPtr::new(&raw mut object);
    for address in [&raw mut object, ptr::null_mut()] {
        link.store(address, Ordering::Release);
        assert!(domain.check(domain.start()), "it holds no grace period up");
        assert!(!vouches());
        // SAFETY: this thread has the slot.
        assert_eq!(unsafe { slot.load(&domain, &link) }.is_none(), address.is_null());
        assert!(vouches());
    }
    // SAFETY: this thread has the slot, and does not use it any more.
    unsafe { slot.give_back(&domain) };
    assert_eq!(state.load(Ordering::Relaxed), states::AWAY);
}

#[test]
fn slots_by_offsets_hold_objects() {
    let (domain, census) = (Domain::new(), Census::default());
    let (reader, mut reclaimer) = (domain.reader(), eager(&domain));
    let parts = Parts::of(&reader);
    let fields = Fields::of(parts);
    let (first, one) = object(&census);
    let (second, two) = object(&census);
    fields.hazard.store(first.as_ptr().cast(), Ordering::Release);
    barrier(parts);
    // SAFETY: this is the reader's thread.
    let slot = unsafe { parts.slot() };
    assert_ne!(slot.into_raw(), std::ptr::NonNull::from(fields.hazard).cast(), "the first one is in use");
    // SAFETY: it is a slot of the reader.
    unsafe { slot.into_raw().cast::<AtomicPtr<()>>().as_ref() }
        .store(second.as_ptr().cast(), Ordering::Release);
    barrier(parts);
    // SAFETY: they are known only here.
    unsafe {
        reclaimer.retire_raw(one).expect("there is room");
        reclaimer.retire_raw(two).expect("there is room");
    }
    assert_eq!(reclaimer.poll(), 0);
    fields.hazard.store(ptr::null_mut(), Ordering::Release);
    assert_eq!(reclaimer.poll(), 1);
    // SAFETY: it is the address of the slot, on the reader's thread.
    unsafe { Slot::from_raw(slot.into_raw()).release() };
    assert_eq!((reclaimer.poll(), census.freed()), (1, 2));
    // The first slot is the one that a protected load takes.
    let link = AtomicPtr::new(std::ptr::dangling_mut::<u64>());
    let (_, slot) = raw::protect(&reader, &link).expect("it is not null");
    assert_eq!(slot.into_raw(), std::ptr::NonNull::from(fields.hazard).cast());
    // SAFETY: this is the reader's thread.
    unsafe { slot.release() };
}
