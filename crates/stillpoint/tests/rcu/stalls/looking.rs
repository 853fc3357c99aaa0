//! Stalls that are looked up on demand, without a hook.

use std::time::Duration;

use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::Domain;

use super::{synchronizes, until, while_pinned};
use crate::SHORT;

#[test]
fn without_a_grace_period_there_is_no_stall() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    assert_eq!(domain.stall(), None);
    domain.start();
    let stall = domain.stall().expect("this guard is in the way");
    assert_eq!((stall.reader, stall.waited, stall.others), (ReaderKind::Guard, Duration::ZERO, 0));
    let _qsbr = domain.qsbr_reader();
    assert_eq!(domain.stall().map(|stall| stall.others), Some(0), "it is newer than the token");
    domain.start();
    assert_eq!(domain.stall().map(|stall| stall.others), Some(1));
    drop(guard);
    assert_eq!(domain.stall().map(|stall| stall.reader), Some(ReaderKind::Qsbr));
}

#[test]
fn the_wait_of_another_thread_is_known() {
    let domain = Domain::new();
    while_pinned(&domain, |_leave| {
        synchronizes(&domain);
        let stall = until(|| domain.stall().filter(|stall| stall.waited >= SHORT));
        assert_eq!(stall.thread_name.as_deref(), Some("sleepy"));
        // A wait that began later reports the time of the longer wait, too.
        let answer = domain.synchronize_timeout(Duration::from_millis(1));
        let Err(SynchronizeError::Stalled(later)) = answer else { panic!("{answer:?}") };
        assert!(later.waited >= stall.waited);
    });
}

#[test]
fn the_batch_of_a_reclaimer_is_known() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    while_pinned(&domain, |_leave| {
        reclaimer.retire(domain.cell(1_u64).take().expect("never empty")).expect("there is room");
        reclaimer.poll();
        let stall = until(|| domain.stall().filter(|stall| stall.waited >= SHORT));
        assert_eq!((stall.pending, stall.pending_bytes), (1, 8));
        drop(reclaimer);
        assert_eq!(
            domain.stall().map(|stall| stall.waited),
            Some(Duration::ZERO),
            "no thread waits any more"
        );
    });
    assert_eq!(domain.stall(), None);
}
