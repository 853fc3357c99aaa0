use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

use stillpoint::rcu::raw::{self, Slot, Spare};
use stillpoint::rcu::Domain;

use super::object;
use crate::census::Census;
use crate::eager;
use crate::modes::modes;

#[test]
fn a_spare_becomes_a_reader_of_the_thread_that_makes_it() {
    for mode in modes() {
        let domain = Domain::builder().fence(mode).build().expect("it was probed");
        drop(domain.cell(7).protect_owned()); // leaves a record for the next one
        let spare = Spare::new(&domain);
        assert_eq!((domain.stats().readers, domain.stats().owned), (1, 0));
        assert!(domain.check(domain.start()), "it is not used for reading");
        let spare = thread::scope(|scope| {
            let spare = scope.spawn(|| {
                let reader = spare.into_reader();
                let guard = reader.pin();
                assert!(!domain.check(domain.start()));
                assert!(domain.synchronize().is_err(), "it would wait for itself");
                drop(guard);
                Spare::of_reader(reader)
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

/// A forgotten guard and forgotten slots do not outlast the reader when it becomes a spare.
#[test]
fn a_spare_holds_nothing_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();
    std::mem::forget(reader.pin());
    let (address, retired) = object(&census);
    let _ = stillpoint::rcu::raw::protect(&reader, &AtomicPtr::new(address.as_ptr()));
    // SAFETY: it is known only here.
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

/// The slot is made by one thread, set by a second one, given back by a third one, and used again meanwhile.
#[test]
fn a_slot_of_nobody_wanders_while_it_holds() {
    for mode in modes() {
        let domain = Domain::builder().fence(mode).build().expect("it was probed");
        let census = Census::default();
        let mut reclaimer = eager(&domain);
        let slot = thread::scope(|scope| {
            scope.spawn(|| Slot::of_nobody(&domain).into_raw().as_ptr().expose_provenance()).join()
        });
        let slot = ptr::with_exposed_provenance_mut(slot.expect("it does not panic"));
        // SAFETY: it came from `into_raw`, of a slot that is given back below.
        let slot = unsafe { Slot::from_raw(ptr::NonNull::new(slot).expect("it is not null")) };
        assert_eq!((domain.stats().owned, domain.stats().readers), (1, 0));
        for _ in 0..3 {
            let (address, retired) = object(&census);
            let link = AtomicPtr::new(address.as_ptr());
            // SAFETY: this thread has the slot.
            assert_eq!(unsafe { slot.load(&domain, &link) }, Some(address));
            link.store(ptr::null_mut(), Ordering::Release);
            // SAFETY: it is no longer linked.
            unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
            assert_eq!((reclaimer.poll(), reclaimer.poll()), (0, 0), "{mode}");
            // SAFETY: it is held.
            unsafe { address.as_ref() }.verify();
            // SAFETY: this thread has the slot.
            assert!(unsafe { slot.load(&domain, &link) }.is_none(), "and lets go");
            assert_eq!(reclaimer.poll(), 1, "{mode}");
        }
        let (address, retired) = object(&census);
        // SAFETY: as above.
        assert!(unsafe { slot.load(&domain, &AtomicPtr::new(address.as_ptr())) }.is_some());
        // SAFETY: it is known only here.
        unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        // SAFETY: as above; it is not used any more.
        unsafe { slot.give_back(&domain) };
        assert_eq!((reclaimer.poll(), domain.stats().owned), (1, 0), "{mode}");
        // SAFETY: as above.
        unsafe { Slot::of_nobody(&domain).give_back(&domain) };
        drop(domain.reader());
        drop(Spare::new(&domain));
    }
}
