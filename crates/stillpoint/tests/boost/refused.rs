//! A process that may not raise threads.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet};
use stillpoint::rcu::{Boost, BuildError, Domain};

use super::child::in_child;
use super::crowd::{beside, read, Scheduling};
use super::{domain, names_the_right, until};

/// Gives up the right to raise threads.
fn give_up() {
    setrlimit(Resource::Rtprio, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    give_up_the_capability();
}

fn give_up_the_capability() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_NICE);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn the_error_names_what_is_missing() {
    in_child("refused::the_error_names_what_is_missing", || {
        give_up();
        let error = Domain::builder().boost(Boost::Realtime).build().expect_err("the right was given up");
        assert_eq!(error, BuildError::Boost { boost: Boost::Realtime, errno: libc::EPERM });
        assert!(names_the_right(&error), "{error}");
    });
}

/// The domain was built with the right, and its booster has lost it since. Writers wait for readers, and the refusal is
/// counted.
#[test]
fn a_right_that_is_lost_later_is_counted() {
    in_child("refused::a_right_that_is_lost_later_is_counted", || {
        let Some(domain) = domain(Boost::Realtime) else { return };
        beside(
            &domain,
            |domain, stage, _| read(domain, stage),
            |domain, stage, _| {
                let reader = stage.reader();
                give_up();
                until("a refusal", || {
                    domain.synchronize().unwrap();
                    domain.stats().boost_refused > 0
                });
                assert_eq!(Scheduling::of(reader), Scheduling::ORDINARY);
            },
        );
        assert_eq!(domain.stats().boosted, 0);
    });
}

/// Its own priority is not tried out: it could lose it for good.
#[test]
fn a_real_time_thread_needs_the_capability_or_the_limit() {
    in_child("refused::a_real_time_thread_needs_the_capability_or_the_limit", || {
        let may_raise = || Domain::builder().boost(Boost::Realtime).build().is_ok();
        if domain(Boost::Realtime).is_none() {
            return;
        }
        let parameter = libc::sched_param { sched_priority: 1 };
        // SAFETY: the kernel reads the structure.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) }, 0);
        // Where the process may not raise the limit, it is what it was.
        let _ = setrlimit(Resource::Rtprio, Rlimit { current: Some(1), maximum: Some(1) });
        let maximum = getrlimit(Resource::Rtprio).maximum;
        setrlimit(Resource::Rtprio, Rlimit { current: Some(0), maximum }).unwrap();
        let is_capable = capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_NICE);
        assert_eq!(may_raise(), is_capable, "by the capability");
        give_up_the_capability();
        assert!(!may_raise(), "without both");
        setrlimit(Resource::Rtprio, Rlimit { current: maximum, maximum }).unwrap();
        assert_eq!(may_raise(), maximum != Some(0), "by the limit");
    });
}

#[test]
fn the_fallback_is_taken() {
    in_child("refused::the_fallback_is_taken", || {
        give_up();
        for fallback in [Boost::Migrate, Boost::Off] {
            let domain = Domain::builder().boost(Boost::Realtime).boost_fallback(fallback).build().unwrap();
            assert_eq!(domain.boost(), fallback);
        }
    });
}

#[test]
fn off_is_the_default() {
    assert_eq!(Domain::new().boost(), Boost::Off);
    assert_eq!(Domain::builder().build().unwrap().boost(), Boost::Off);
    assert_eq!(Boost::default(), Boost::Off);
}
