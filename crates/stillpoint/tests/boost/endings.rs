//! However the boost ends, the thread is scheduled as before.

use std::time::Duration;

use stillpoint::rcu::{Boost, Domain, Reclaimer};

use super::crowd::{beside, Scheduling, Stage};
use super::{domain, in_each_way, until};

/// Calls `test` for each way to boost, with the id of a thread on the crowded CPU that stays in one section, computing,
/// until the end of the test.
fn beside_one_section(test: impl Fn(&Domain, i32, usize)) {
    let one_section = |domain: &Domain, stage: &Stage, _cpu: usize| {
        let reader = domain.reader();
        let _guard = reader.pin();
        stage.compute();
    };
    in_each_way(|domain| {
        beside(&domain, one_section, |domain, stage, cpu| test(domain, stage.reader(), cpu));
    });
}

/// Polls until the reader, inside its section, has been boosted by this reclaimer.
fn boost(domain: &Domain) -> Reclaimer {
    let (cell, before) = (domain.cell(0), domain.stats().boosted);
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
    until("boost", || {
        let _ = reclaimer.retire(cell.replace(1).unwrap());
        reclaimer.poll();
        domain.stats().boosted > before
    });
    reclaimer
}

/// As `boost`, until the section has ended.
fn boost_until_the_end(domain: &Domain) {
    let mut reclaimer = boost(domain);
    until("the end of the section", || {
        reclaimer.poll();
        reclaimer.pending() == 0
    });
}

#[test]
fn it_ends_when_its_time_is_over() {
    beside_one_section(|domain, reader, cpu| {
        let mut reclaimer = boost(domain);
        until("the end of boost within the section", || {
            reclaimer.poll();
            !Scheduling::is_boosted(reader, cpu)
        });
        assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
    });
}

/// The reclaimer that takes over boosts by itself, when it looks.
#[test]
fn it_ends_when_another_reclaimer_takes_over() {
    beside_one_section(|domain, reader, _| {
        let mut before = boost(domain);
        domain.reclaimer().take_over(&mut before);
        assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
    });
}

#[test]
fn it_ends_with_the_reclaimer_that_gave_it() {
    beside_one_section(|domain, reader, _| {
        drop(boost(domain));
        assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
    });
}

/// The other reclaimer has boosted as well, but its time was over.
#[test]
fn it_does_not_end_with_another_reclaimer() {
    beside_one_section(|domain, reader, cpu| {
        let (first, second) = (boost(domain), boost(domain));
        drop(first);
        assert!(Scheduling::is_boosted(reader, cpu), "{:?}", Scheduling::of(reader));
        drop(second);
        assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
    });
}

#[test]
fn it_ends_with_the_wait_that_gave_it() {
    beside_one_section(|domain, reader, _| {
        until("boost", || {
            let _ = domain.synchronize_timeout(Duration::from_millis(1));
            assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
            domain.stats().boosted >= 3
        });
    });
}

/// The reader is dropped inside its section, because the guard was forgotten.
#[test]
fn it_ends_with_the_reader() {
    in_each_way(|domain| {
        beside(
            &domain,
            |domain, stage, cpu| {
                let reader = domain.reader();
                std::mem::forget(reader.pin());
                stage.until_boosted(cpu);
                drop(reader);
                assert_eq!(Scheduling::of(0), Scheduling::ORDINARY);
            },
            |domain, _, _| drop(boost(domain)),
        );
    });
}

#[test]
fn what_the_thread_changes_itself_is_left_as_it_is() {
    let Some(domain) = domain(Boost::Realtime) else { return };
    beside(
        &domain,
        |domain, stage, cpu| {
            let reader = domain.reader();
            let guard = reader.pin();
            stage.until_boosted(cpu);
            let parameter = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameter is alive for the call.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) }, 0);
            drop(guard);
            assert_eq!(Scheduling::of(0).policy, libc::SCHED_BATCH);
        },
        |domain, _, _| boost_until_the_end(domain),
    );
}

/// Only the boosted thread itself is raised, not the threads that it starts meanwhile.
#[test]
fn what_a_raised_thread_starts_is_ordinary() {
    let Some(domain) = domain(Boost::Realtime) else { return };
    beside(
        &domain,
        |domain, stage, cpu| {
            let reader = domain.reader();
            let guard = reader.pin();
            stage.until_boosted(cpu);
            let started = std::thread::spawn(|| Scheduling::of(0)).join().unwrap();
            assert_eq!(started, Scheduling::ORDINARY);
            drop(guard);
        },
        |domain, stage, _| {
            boost_until_the_end(domain);
            stage.go_on();
        },
    );
}

/// A reader forks while it is boosted; its child is not.
#[test]
fn it_ends_in_the_child_of_a_fork() {
    in_each_way(|domain| {
        beside(
            &domain,
            |domain, stage, cpu| {
                let reader = domain.reader();
                let _guard = reader.pin();
                stage.until_boosted(cpu);
                // SAFETY: the child makes only system calls, and calls of the library that take no locks.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: this is the only thread of the child, and it has borrowed nothing from the others.
                    unsafe { domain.reset_after_fork() };
                    let same = Scheduling::of(0) == Scheduling::ORDINARY;
                    // SAFETY: no preconditions.
                    unsafe { libc::_exit(if same { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: `status` is alive for the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child stayed boosted like its parent");
            },
            |domain, _, _| drop(boost(domain)),
        );
    });
}
