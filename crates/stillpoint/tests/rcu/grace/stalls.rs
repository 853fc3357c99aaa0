//! The contents of a stall report.

use std::sync::mpsc;
use std::thread;

use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::Domain;

use super::retire_one;
use crate::census::Object;
use crate::{with_cell, LONG, SHORT};

/// Runs `test` with the id of a thread named `sleepy` that is in a region of `domain` meanwhile.
fn while_held(domain: &Domain, kind: ReaderKind, test: impl FnOnce(u32)) {
    let (held, is_held) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let holds = move || {
            let reader = domain.reader();
            let guard = (kind == ReaderKind::Guard).then(|| reader.pin());
            let qsbr = (kind == ReaderKind::Qsbr).then(|| domain.qsbr_reader());
            // SAFETY: `gettid` has no preconditions.
            held.send(unsafe { libc::gettid() }).expect("the test waits for it");
            let _ = is_done.recv();
            drop((guard, qsbr));
        };
        thread::Builder::new().name("sleepy".into()).spawn_scoped(scope, holds).expect("there is room");
        test(is_held.recv().expect("the thread runs").unsigned_abs());
        drop(done);
    });
}

#[test]
#[cfg_attr(miri, ignore = "has no thread ids")]
fn a_stall_report_names_the_reader_and_what_waits_for_it() {
    for kind in [ReaderKind::Guard, ReaderKind::Qsbr] {
        let domain = Domain::builder().name("routes").build().expect("the default mode is always available");
        let (census, cell, mut reclaimer) = with_cell(&domain);
        while_held(&domain, kind, |thread_id| {
            for _ in 0..3 {
                retire_one(&cell, &census, &mut reclaimer);
            }
            let bytes = 3 * size_of::<Object>() as u64;
            let token = domain.start();
            for answer in [
                domain.synchronize_timeout(SHORT),
                domain.wait_timeout(token, SHORT),
                reclaimer.flush_timeout(SHORT),
            ] {
                let Err(SynchronizeError::Stalled(stall)) = answer else { panic!("{kind:?}: {answer:?}") };
                assert_eq!(stall.domain, "routes");
                assert_eq!(stall.reader, kind);
                assert_eq!(stall.thread_id, thread_id);
                assert_eq!(stall.thread_name.as_deref(), Some("sleepy"));
                assert!(stall.waited >= SHORT && stall.waited < LONG, "{:?}", stall.waited);
                assert_eq!((stall.pending, stall.pending_bytes), (3, bytes));
            }
        });
        assert_eq!(domain.synchronize_timeout(LONG), Ok(()));
    }
}

#[test]
#[cfg_attr(miri, ignore = "has no thread ids")]
fn a_stall_report_reads_as_a_sentence() {
    let cases = [
        (ReaderKind::Guard, "(`sleepy`) has a region open in domain `routes`"),
        (ReaderKind::Qsbr, "(`sleepy`) has not reported a quiescent state in domain `routes`"),
    ];
    for (kind, expected) in cases {
        let domain = Domain::builder().name("routes").build().expect("the default mode is always available");
        while_held(&domain, kind, |thread_id| {
            let text = domain.synchronize_timeout(SHORT).expect_err("a reader is in the way").to_string();
            assert!(text.contains(expected) && text.contains(&format!("thread {thread_id} ")), "{text}");
            assert!(text.contains("0 objects (0 bytes)"), "{text}");
            let Err(SynchronizeError::Stalled(mut stall)) = domain.synchronize_timeout(SHORT) else {
                panic!("a reader is in the way")
            };
            for (count, others, objects) in [
                (1, ", and 1 further reader is in the way; ", " 1 object (64 bytes) waits to be freed"),
                (2, ", and 2 further readers are in the way; ", " 2 objects (64 bytes) wait to be freed"),
            ] {
                (stall.others, stall.pending, stall.pending_bytes) = (count, count as u64, 64);
                let text = stall.to_string();
                assert!(text.contains(others) && text.ends_with(objects), "{text}");
            }
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "has no thread ids")]
fn a_reader_whose_thread_has_ended_has_no_name() {
    let domain = Domain::new();
    thread::scope(|scope| {
        let forgets = scope.spawn(|| std::mem::forget(domain.qsbr_reader()));
        forgets.join().expect("it does not panic");
    });
    // The thread of this test is not the one that has ended.
    let answer = domain.wait_timeout(domain.start(), SHORT);
    let Err(SynchronizeError::Stalled(stall)) = answer else { panic!("{answer:?}") };
    assert_eq!((stall.reader, &stall.thread_name), (ReaderKind::Qsbr, &None));
    assert!(stall.to_string().contains("which has ended"), "{stall}");
}
