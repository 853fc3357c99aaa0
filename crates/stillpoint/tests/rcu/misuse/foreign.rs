//! Readers, tokens and objects of another domain.

use std::mem;
use std::time::Instant;

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::{Domain, RcuArray, RcuCell, Retired};

use super::message_of;
use crate::census::Census;
use crate::{eager, LONG};

fn named(name: &str) -> Domain {
    Domain::builder().name(name).build().expect("the default mode is always available")
}

#[test]
fn a_foreign_reader_panics_with_the_names_of_both_domains() {
    let (here, there) = (named("here"), named("there"));
    let cell = here.cell(1);
    let array = RcuArray::new_in(&here, 1, |_| Some(Box::new(1)));
    let (reader, mut other_reader) = (there.reader(), there.reader());
    let guard = reader.pin();
    let (qsbr, mut other_qsbr) = (there.qsbr_reader(), there.qsbr_reader());
    let messages = [
        message_of(|| cell.protect(&reader).is_some()),
        message_of(|| cell.load(&guard).is_some()),
        message_of(|| cell.load(&qsbr).is_some()),
        message_of(|| array.protect(0, &reader).is_some()),
        message_of(|| array.load(0, &guard).is_some()),
        message_of(|| array.load(0, &qsbr).is_some()),
        message_of(|| cell.compare_exchange_in(&guard, None, None).is_ok()),
        message_of(|| array.compare_exchange_in(0, &qsbr, None, None).is_ok()),
        message_of(|| array.bind(&mut other_reader).protect(0).is_some()),
        message_of(|| array.bind_qsbr(&mut other_qsbr).load(0).is_some()),
    ];
    for message in messages {
        assert!(message.contains("`here`") && message.contains("`there`"), "{message}");
    }
    assert_eq!(cell.load(&here.reader().pin()), Some(&1), "the cell is as good as before");
}

/// A bound array is checked when it is bound. Its guards are regions only of their own domain.
#[test]
fn a_foreign_bound_array_panics_with_the_names_of_both_domains() {
    let (here, there) = (named("here"), named("there"));
    let cell = here.cell(1);
    let array = RcuArray::new_in(&there, 1, |_| Some(Box::new(1)));
    let (mut reader, mut qsbr) = (there.reader(), there.qsbr_reader());
    let mut bound = array.bind(&mut reader);
    let guard = bound.pin();
    let bound_qsbr = array.bind_qsbr(&mut qsbr);
    for message in
        [message_of(|| cell.load(&guard).is_some()), message_of(|| cell.load(&bound_qsbr).is_some())]
    {
        assert!(message.contains("`here`") && message.contains("`there`"), "{message}");
    }
    assert_eq!((guard.load(0), bound_qsbr.load(0)), (Some(&1), Some(&1)));
}

/// Structures check readers and reclaimers by `verify`.
#[test]
fn a_structures_check_names_both_domains_and_says_what_to_pass() {
    let (here, there) = (named("here"), named("there"));
    let messages =
        [message_of(|| there.reader().verify(&here)), message_of(|| there.reclaimer().verify(&here))];
    for message in messages {
        let (wrong, remedy) = message.split_once("; ").expect("a cause, and what to do");
        assert!(wrong.contains("of domain `there`") && wrong.contains("of domain `here`"), "{message}");
        assert_eq!(remedy, "pass one of `here`");
    }
}

#[test]
fn an_empty_cell_rejects_a_foreign_reader_too() {
    let (here, there) = (named("here"), named("there"));
    let cell = RcuCell::<u32>::empty_in(&here);
    let message = message_of(|| cell.protect(&there.reader()).is_some());
    assert!(message.contains("`here`") && message.contains("`there`"), "{message}");
}

#[test]
fn readers_that_swap_places_stay_foreign() {
    let (here, there) = (named("here"), named("there"));
    let cell = here.cell(1);
    let (mut first, mut second) = (here.reader(), there.reader());
    mem::swap(&mut first, &mut second);
    assert!(message_of(|| cell.protect(&first).is_some()).contains("`there`"));
    assert_eq!(cell.protect(&second).as_deref(), Some(&1));
}

#[test]
fn no_later_domain_is_taken_for_one_that_is_gone() {
    let gone = named("gone");
    let cell = gone.cell(1);
    drop(gone);
    // If the address of the old domain were free, the allocator would return it at once.
    for _ in 0..100 {
        let later = named("later");
        let message = message_of(|| cell.protect(&later.reader()).is_some());
        assert!(message.contains("`later`") && message.contains("its last handle was dropped"), "{message}");
    }
}

#[test]
fn a_foreign_token_panics_with_both_domains() {
    let (here, there) = (named("here"), named("there"));
    let token = there.start();
    for message in [message_of(|| here.check(token)), message_of(|| here.wait(token).is_ok())] {
        let number = format!("domain number {}", there.id());
        assert!(message.contains("`here`") && message.contains(&number), "{message}");
    }
    assert!(there.check(token));
}

#[test]
fn a_foreign_object_is_handed_back_and_freed_by_its_own_domain() {
    let census = Census::default();
    let (here, there) = (named("here"), named("there"));
    let cell = there.cell(census.object());
    let (mut reclaimer, background) = (here.reclaimer(), here.background());
    let handle = background.retire_handle();

    let mut old = cell.take().expect("the cell was not empty");
    let asked = Instant::now();
    let ways: [&mut dyn FnMut(Retired<_>) -> _; 4] = [
        &mut |old| reclaimer.retire(old),
        &mut |old| handle.retire(old),
        &mut |old| handle.retire_timeout(old, LONG),
        &mut |old| eager(&here).retire_timeout(old, LONG),
    ];
    for way in ways {
        let error = way(old).expect_err("it is of another domain");
        assert_eq!(error.kind(), RetireErrorKind::ForeignDomain);
        assert!(error.to_string().contains("`there`"), "{error}");
        old = error.into_inner();
        old.verify();
    }
    assert!(asked.elapsed() < LONG, "there is nothing to wait for");
    assert_eq!((reclaimer.pending(), handle.pending(), census.freed()), (0, 0, 0));

    there.reclaimer().retire(old).expect("this is its domain");
    drop(there);
    assert_eq!(census.freed(), 1);
}

#[test]
fn an_object_that_moves_to_another_domain_obeys_that_one() {
    let census = Census::default();
    let (here, there) = (named("here"), named("there"));
    let first = here.cell(census.object());
    let boxed = first.take().and_then(|old| old.try_into_box().ok()).expect("there is no reader");

    let second = RcuCell::empty_in(&there);
    assert!(second.swap(Some(boxed)).is_none());
    let reader = there.reader();
    let object = second.protect(&reader).expect("it was just linked");
    let mut reclaimer = eager(&there);
    reclaimer.retire(second.take().expect("it was just linked")).expect("it is of this domain now");
    assert_eq!(reclaimer.poll(), 0);
    object.verify();
    drop(object);
    assert_eq!(reclaimer.poll(), 1);
}
