//! Readers that are silent, by the names of their threads.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use stillpoint::fence::Mode;
use stillpoint::rcu::raw::{offsets, Slot};
use stillpoint::rcu::wait::{Activity, ReaderKind, Stall};
use stillpoint::rcu::Domain;

use super::activity::own_id;
use super::until;
use crate::grace::fences::with_heavy_fences;

/// The only silent reader of the domain, if there is one.
fn only(domain: &Domain) -> Option<Stall> {
    let all: Vec<_> = domain.silent().collect();
    assert!(all.len() <= 1 && all.len() == domain.stats().silent, "{all:?}");
    all.into_iter().next()
}

fn is_asleep(silent: &Stall) -> bool {
    silent.activity == Activity::Sleeping
}

#[test]
fn a_thread_that_sleeps_after_a_load_is_named_until_it_goes_offline() {
    with_heavy_fences(|domain| {
        let (done, is_done) = mpsc::channel();
        let (go_on, next) = mpsc::channel::<()>();
        let domain = &domain;
        thread::scope(|scope| {
            let sleeps = move || {
                let reader = domain.reader();
                drop(reader.pin());
                done.send(own_id()).expect("the test waits for it");
                let _ = next.recv();
                assert!(reader.offline());
                done.send(0).expect("the test waits for it");
                let _ = next.recv();
            };
            thread::Builder::new().name("sleepy".into()).spawn_scoped(scope, sleeps).expect("there is room");
            let id = is_done.recv().expect("the thread runs");
            assert_eq!(only(domain), None, "no grace period has started since");
            for missed in 1..=3 {
                domain.start();
                let silent = until(|| only(domain).filter(is_asleep));
                assert_eq!((silent.thread_id, silent.missed), (id, Some(missed)));
                assert_eq!(
                    (silent.reader, silent.thread_name.as_deref()),
                    (ReaderKind::Guard, Some("sleepy"))
                );
                assert_eq!(silent.domain, domain.name());
                let words =
                    format!("thread {id} (`sleepy`) is silent in domain `{}` (sleeping", domain.name());
                let text = silent.to_string();
                assert!(
                    text.starts_with(&words) && text.ends_with("; call offline() before it sleeps"),
                    "{text}"
                );
                let number = if missed == 1 {
                    "1 grace period has".to_owned()
                } else {
                    format!("{missed} grace periods have")
                };
                assert!(text.contains(&format!(": {number} started since its last load;")), "{text}");
            }
            go_on.send(()).expect("it is there");
            assert_eq!(is_done.recv(), Ok(0));
            assert_eq!(only(domain), None, "it is offline");
            drop(go_on);
        });
    });
}

#[test]
fn a_thread_that_does_not_sleep_gets_no_advice() {
    with_heavy_fences(|domain| {
        let (done, is_done) = mpsc::channel();
        let (go_on, next) = mpsc::channel::<()>();
        let domain = &domain;
        thread::scope(|scope| {
            scope.spawn(move || {
                let reader = domain.reader();
                drop(reader.pin());
                done.send(()).expect("the test waits for it");
                while next.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    std::hint::spin_loop();
                }
            });
            is_done.recv().expect("the thread runs");
            domain.start();
            let silent = until(|| only(domain).filter(|silent| !is_asleep(silent)));
            assert!(matches!(silent.activity, Activity::Running | Activity::Runnable), "{silent:?}");
            assert!(!silent.to_string().contains("offline"), "{silent}");
            drop(go_on);
        });
    });
}

#[test]
fn a_reader_that_a_thread_has_left_behind_is_one_of_a_thread_that_has_ended() {
    with_heavy_fences(|domain| {
        let of_thread = domain.clone();
        let forgets = move || {
            let reader = of_thread.reader();
            drop(reader.pin());
            std::mem::forget(reader);
        };
        thread::spawn(forgets).join().expect("it does not panic");
        domain.start();
        // The kernel may remove the thread some microseconds late.
        let silent = until(|| only(&domain).filter(|silent| silent.activity == Activity::Ended));
        assert!(!silent.to_string().contains("offline") && silent.thread_name.is_none(), "{silent:?}");
        let words = format!("thread {}, which has ended, is silent in domain", silent.thread_id);
        assert!(silent.to_string().starts_with(&words), "{silent}");
    });
}

#[test]
fn a_slot_of_nobody_has_no_thread() {
    with_heavy_fences(|domain| {
        // Its thread's id does not stay in the record.
        drop(domain.reader());
        let slot = Slot::of_nobody(&domain);
        let mut object = 1;
        let link = AtomicPtr::new(&raw mut object);
        // SAFETY: this thread has the slot.
        assert!(unsafe { slot.load(&domain, &link) }.is_some());
        domain.start();
        let silent = only(&domain);
        assert_eq!(silent.is_none(), Slot::needs_full_fence(&domain));
        if let Some(silent) = silent {
            assert_eq!(
                (silent.reader, silent.thread_id, silent.missed),
                (ReaderKind::ProtectedLoad, 0, Some(1))
            );
            assert_eq!((silent.activity, silent.thread_name.as_ref()), (Activity::Unknown, None));
            assert!(
                silent.to_string().starts_with("a slot that belongs to no thread is silent in"),
                "{silent}"
            );
            // Of code in another language that vouches for nothing.
            // SAFETY: the slot is in a record, from whose address its own was made, and which is there as long as the domain.
            let state: &AtomicU64 =
                unsafe { slot.into_raw().byte_sub(offsets::HAZARD - offsets::STATE).cast().as_ref() };
            state.store(0, Ordering::Release);
            assert_eq!(only(&domain).and_then(|silent| silent.missed), Some(1), "there were no more");
        }
        // SAFETY: as above, and this is the last use.
        unsafe { slot.give_back(&domain) };
        assert_eq!(only(&domain), None);
    });
}

/// There no grace period needs a heavy fence, whatever readers do.
#[test]
fn in_a_symmetric_domain_no_reader_is_silent() {
    let domain = Domain::builder().fence(Mode::Symmetric).build().expect("it needs no right");
    let _silent = crate::other::silent(&domain);
    domain.start();
    assert_eq!(only(&domain), None);
}
