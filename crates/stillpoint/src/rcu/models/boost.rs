//! A boost against the end of the section, of the registration, and of the boost itself.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::{explore, MODE};
use crate::rcu::engine::boost::Booster;
use crate::rcu::{Boost, Domain, Guard, Reader};
use stillpoint_sys::linux::sched::is_raised;

/// The message when the thread is found raised.
pub(super) const RAISED: &str = "the thread was left raised";

fn domain() -> Domain {
    let builder = Domain::builder().fence(MODE.get()).boost(Boost::Realtime).boost_after(Duration::ZERO);
    builder.build().expect("no fence mode is refused in a model")
}

/// Starts a token and boosts the readers that hold it up.
fn boost(domain: &Domain) -> Booster {
    let core = domain.core();
    let token = core.protocol.start();
    let _ = core.protocol.check(token);
    let mut booster = Booster::default();
    booster.boost(core, token, Duration::ZERO);
    booster
}

fn assert_lowered() {
    assert!(!is_raised(), "{RAISED}");
}

fn spawn(domain: &Arc<Domain>, function: impl FnOnce(&Domain) + 'static) -> thread::JoinHandle<()> {
    let domain = Arc::clone(domain);
    thread::spawn(move || function(&domain))
}

/// Explores two threads: one that is spawned runs `boosts`, and this one has a section, and runs `ends`. When both are done, this one is not
/// raised.
fn in_section(
    preemptions: usize,
    boosts: impl Fn(&Domain) + Copy + Send + Sync + 'static,
    ends: impl Fn(&Reader, Guard<'_>) + Send + Sync + 'static,
) {
    explore(preemptions, move || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let booster = spawn(&domain, boosts);
        ends(&reader, guard);
        booster.join().unwrap();
        assert_lowered();
    });
}

/// At the end, the reader is outside any section, and alive: only the reader or the booster could have lowered it.
#[test]
fn a_section_ends() {
    in_section(4, |domain| drop(boost(domain)), |_, guard| drop(guard));
}

#[test]
fn a_reader_unregisters() {
    explore(4, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        std::mem::forget(reader.pin());
        let booster = spawn(&domain, |domain| drop(boost(domain)));
        drop(reader);
        booster.join().unwrap();
        assert_lowered();
    });
}

/// The record has a new holder at once, which begins a section.
#[test]
fn a_record_changes_hands() {
    explore(3, || {
        let domain = Arc::new(domain());
        let mut first = domain.qsbr_reader();
        let booster = spawn(&domain, |domain| drop(boost(domain)));
        first.quiescent();
        drop(first);
        let second = domain.reader();
        drop(second.pin());
        booster.join().unwrap();
        assert_lowered();
    });
}

/// Two threads boost, one of them also ends its boost, and the section ends.
#[test]
fn two_boost() {
    explore(2, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let first = spawn(&domain, |domain| drop(boost(domain)));
        let second = spawn(&domain, |domain| boost(domain).end(domain.core()));
        drop(guard);
        first.join().unwrap();
        second.join().unwrap();
        assert_lowered();
    });
}

/// Sections follow each other, while another thread boosts twice.
#[test]
fn sections_follow_each_other() {
    let boosts = |domain: &Domain| {
        drop(boost(domain));
        drop(boost(domain));
    };
    in_section(3, boosts, |reader, guard| {
        drop(guard);
        drop(reader.pin());
    });
}

/// The section goes on, and another thread ends the boost at any time: the reader is lowered when both have finished.
#[test]
fn the_time_is_over() {
    explore(4, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let booster = spawn(&domain, |domain| drop(boost(domain)));
        let boost_state = reader.record().boost_state().expect("the domain boosts");
        let record = std::ptr::from_ref(reader.record()).addr();
        boost_state.end(record);
        booster.join().unwrap();
        boost_state.end(record);
        assert_lowered();
        drop(guard);
        assert_lowered();
    });
}

/// A reader does not wait for a booster that is stuck in the system call that raises. Among the executions are those in which only
/// the reader's thread runs until the reader is gone.
#[test]
fn nobody_waits_for_a_booster() {
    explore(3, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let booster = spawn(&domain, |domain| drop(boost(domain)));
        drop(guard);
        drop(reader.pin());
        drop(reader);
        booster.join().unwrap();
        assert_lowered();
    });
}

/// A thread that ends or forks inside a section closes its boost state: from then on, its scheduling stays as it was.
#[test]
fn a_thread_closes() {
    explore(4, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let booster = spawn(&domain, |domain| drop(boost(domain)));
        reader.record().boost_state().expect("the domain boosts").close();
        assert_lowered();
        booster.join().unwrap();
        assert_lowered();
        drop(guard);
    });
}
