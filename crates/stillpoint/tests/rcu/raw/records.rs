use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

use stillpoint::rcu::raw::{self, Spare};
use stillpoint::rcu::Domain;

use super::object;
use crate::census::Census;
use crate::eager;
use crate::modes::modes;

#[test]
fn a_spare_becomes_a_reader_of_the_thread_that_makes_it() {
    for mode in modes() {
        let domain = Domain::builder().fence(mode).build().expect("it was probed");
        let spare = Spare::new(&domain);
        assert!(domain.check(domain.start()), "nobody reads with it");
        let spare = thread::scope(|scope| {
            let spare = scope.spawn(|| {
                let reader = spare.into_reader();
                let guard = reader.pin();
                assert!(!domain.check(domain.start()));
                assert!(domain.synchronize().is_err(), "it would wait for itself");
                drop(guard);
                let mut reader = Spare::of_reader(reader).into_qsbr_reader();
                let token = domain.start();
                assert!(!domain.check(token));
                reader.quiescent();
                assert!(domain.check(token));
                Spare::of_qsbr_reader(reader)
            });
            spare.join().expect("it does not panic")
        });
        assert_eq!(domain.synchronize(), Ok(()), "the reader is gone");
        let reader = spare.into_reader();
        let guard = reader.pin();
        assert!(!domain.check(domain.start()));
        drop(guard);
        drop(reader);
        assert_eq!(domain.stats().readers, 0);
    }
}

/// A forgotten guard, and forgotten slots, do not outlast the reader that becomes a spare.
#[test]
fn a_spare_holds_nothing_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();
    std::mem::forget(reader.pin());
    let (address, retired) = object(&census);
    let _ = stillpoint::rcu::raw::protect(&reader, &AtomicPtr::new(address.as_ptr()));
    // SAFETY: nobody else knows of it.
    unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    let _spare = Spare::of_reader(reader);
    assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
}

#[test]
fn what_no_thread_protects_wanders() {
    for mode in modes() {
        let domain = Domain::builder().fence(mode).build().expect("it was probed");
        let census = Census::default();
        let mut reclaimer = eager(&domain);
        let (address, retired) = object(&census);
        let link = AtomicPtr::new(address.as_ptr());
        let expected = address.as_ptr().addr();
        let held = thread::scope(|scope| {
            let protect = || {
                let (object, held) = raw::protect_owned(&domain, &link).expect("it is not null");
                assert_eq!(object.as_ptr().addr(), expected);
                held
            };
            scope.spawn(protect).join().expect("it does not panic")
        });
        link.store(ptr::null_mut(), Ordering::Release);
        assert!(raw::protect_owned(&domain, &link).is_none());
        // SAFETY: it is linked no more.
        unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
        assert_eq!((reclaimer.poll(), reclaimer.poll()), (0, 0), "{mode}");
        // SAFETY: it is held.
        unsafe { address.as_ref() }.verify();
        thread::spawn(|| drop(held)).join().expect("it does not panic");
        assert_eq!((reclaimer.poll(), census.freed()), (1, 1), "{mode}");
    }
}
