//! Destructors that use the domain that reclaims them.

use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Mutex};

use stillpoint::rcu::{Domain, RcuCell, Reclaimer, Retired};

use crate::census::{Census, Object};
use crate::child::in_child;
use crate::eager;
use crate::then::Then;

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

thread_local! {
    static RECLAIMER: RefCell<Option<Reclaimer>> = const { RefCell::new(None) };
    static OTHER: RefCell<Option<Reclaimer>> = const { RefCell::new(None) };
}

/// Retires to the reclaimer in `place`, or leaves the object to the domain if the reclaimer is in use.
fn retire_to(place: &'static std::thread::LocalKey<RefCell<Option<Reclaimer>>>, old: Retired<Object>) {
    place.with(|place| {
        if let Ok(mut reclaimer) = place.try_borrow_mut() {
            reclaimer.as_mut().expect("it was set").retire(old).expect("there is room");
        }
    });
}

#[test]
fn an_object_retired_by_a_destructor_is_freed_by_the_next_poll() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let inner = retired(&domain, census.object());
    reclaimer.retire(retired(&domain, Then::new(move || drop(inner)))).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!((census.freed(), domain.stats().pending), (0, 1));
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(census.freed(), 1);
}

/// The poll that runs the destructor borrows the reclaimer.
#[test]
fn a_destructor_that_cannot_reach_its_reclaimer_leaves_the_object_to_the_domain() {
    let (domain, census) = (Domain::new(), Census::default());
    RECLAIMER.set(Some(eager(&domain)));
    let inner = retired(&domain, census.object());
    let outer = retired(&domain, Then::new(move || retire_to(&RECLAIMER, inner)));
    let with = |function: &dyn Fn(&mut Reclaimer) -> usize| {
        RECLAIMER.with_borrow_mut(|reclaimer| function(reclaimer.as_mut().expect("it was set")))
    };
    RECLAIMER.with_borrow_mut(|reclaimer| {
        reclaimer.as_mut().expect("it was set").retire(outer).expect("there is room");
    });
    assert_eq!(with(&|reclaimer| reclaimer.poll()), 1);
    assert_eq!(with(&|reclaimer| reclaimer.poll()), 1);
    assert_eq!(census.freed(), 1);
}

#[test]
fn a_destructor_retires_to_another_reclaimer() {
    let (domain, census) = (Domain::new(), Census::default());
    OTHER.set(Some(eager(&domain)));
    let inner = retired(&domain, census.object());
    let mut reclaimer = eager(&domain);
    let outer = retired(&domain, Then::new(move || retire_to(&OTHER, inner)));
    reclaimer.retire(outer).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    OTHER.with_borrow_mut(|other| {
        let other = other.as_mut().expect("it was set");
        assert_eq!((other.pending(), other.poll()), (1, 1));
    });
    assert_eq!(census.freed(), 1);
}

#[test]
fn a_destructor_polls_another_reclaimer_of_the_same_domain() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut inner = eager(&domain);
    inner.retire(retired(&domain, census.object())).expect("there is room");
    let inner = Mutex::new(inner);
    let mut outer = eager(&domain);
    let nested = Then::new(move || {
        let mut inner = inner.lock().expect("no thread panics");
        assert_eq!(inner.poll(), 1);
    });
    outer.retire(retired(&domain, nested)).expect("there is room");
    outer.retire(retired(&domain, census.object())).expect("there is room");
    assert_eq!(outer.poll(), 2);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_destructor_reads_the_same_domain() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = Arc::new(domain.cell(census.object()));
    let mut reclaimer = eager(&domain);
    let reads = {
        let (domain, cell) = (domain.clone(), Arc::clone(&cell));
        Then::new(move || {
            let reader = domain.reader();
            let object = cell.protect(&reader).expect("the cell is full");
            let guard = reader.pin();
            cell.load(&guard).expect("the cell is full").verify();
            drop(guard);
            let qsbr = domain.qsbr_reader();
            cell.load(&qsbr).expect("the cell is full").verify();
            object.verify();
        })
    };
    reclaimer.retire(retired(&domain, reads)).expect("there is room");
    reclaimer.retire(cell.replace(census.object()).expect("the cell is full")).expect("there is room");
    assert_eq!(reclaimer.poll(), 2);
    assert_eq!(domain.stats().readers, 0);
}

/// The objects of the same batch are past their grace period, so nothing can go wrong for them. Objects that are
/// retired from now on wait.
#[test]
fn a_destructor_that_forgets_a_guard_holds_up_later_objects_alone() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let forgets = {
        let domain = domain.clone();
        Then::new(move || {
            let reader = Box::leak(Box::new(domain.reader()));
            mem::forget(reader.pin());
        })
    };
    reclaimer.retire(retired(&domain, forgets)).expect("there is room");
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    assert_eq!(reclaimer.poll(), 2);
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    assert_eq!(census.freed(), 1);
}

#[test]
fn stop_waits_for_what_destructors_submit() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.background();
    let handle = background.retire_handle();
    let inner = retired(&domain, census.object());
    let submits = {
        let handle = handle.clone();
        Then::new(move || handle.retire(inner).expect("there is room"))
    };
    handle.retire(retired(&domain, submits)).expect("there is room");
    handle.stop();
    background.run();
    assert_eq!((census.freed(), census.alive()), (1, 0));
}

/// An object whose destructor retires the next one, as in a list that unlinks itself.
struct Link {
    _object: Object,
    next: RcuCell<Link>,
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.next.take());
    }
}

fn chain(domain: &Domain, census: &Census, length: usize) -> RcuCell<Link> {
    let first = RcuCell::<Link>::empty_in(domain);
    for _ in 0..length {
        let rest = first.take().map(|rest| rest.try_into_box().ok().expect("there is no reader"));
        let next = RcuCell::empty_in(domain);
        assert!(next.swap(rest).is_none());
        assert!(first.swap(Some(Box::new(Link { _object: census.object(), next }))).is_none());
    }
    first
}

#[test]
fn each_poll_frees_one_link_of_a_chain_of_destructors() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    drop(chain(&domain, &census, 100).take());
    for freed in 1..=100 {
        assert_eq!(reclaimer.poll(), 1);
        assert_eq!(census.freed(), freed);
    }
    assert_eq!(reclaimer.poll(), 0);
}

/// In its own process, since a recursion over the chain would overflow the stack.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn the_end_of_a_domain_frees_a_long_chain_of_destructors_in_a_loop() {
    in_child("misuse::reentry::the_end_of_a_domain_frees_a_long_chain_of_destructors_in_a_loop", || {
        const LENGTH: usize = 200_000;
        let (domain, census) = (Domain::new(), Census::default());
        drop(chain(&domain, &census, LENGTH).take());
        drop(domain);
        assert_eq!((census.freed(), census.alive()), (LENGTH, 0));
    });
}

/// The last handle is gone, and its objects are being dropped. A cell of the same domain can still be used.
#[test]
fn a_cell_is_used_while_its_domain_is_dropped() {
    let (domain, census) = (Domain::new(), Census::default());
    let other = Arc::new(domain.cell(census.object()));
    let (seen, next) = (Arc::clone(&other), census.object());
    drop(retired(&domain, Then::new(move || drop(seen.replace(next)))));
    drop(domain);
    assert_eq!(census.freed(), 1, "what was replaced");
    drop(other);
    assert_eq!(census.freed(), 2);
}
