//! Help against the end of the section, of the registration, and of the help itself.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::{explore, MODE};
use crate::rcu::{Domain, Help};
use crate::sys::sched::is_raised;

/// What loom says when the thread is found raised.
pub(super) const RAISED: &str = "the thread was left raised";

fn domain() -> Domain {
    let builder = Domain::builder().fence(MODE.get()).help(Help::Realtime).help_after(Duration::ZERO);
    builder.build().expect("a model may do what it likes")
}

/// Starts a token and helps who holds it up.
fn help(domain: &Domain) {
    let core = domain.core();
    let token = core.start();
    let _ = core.ensure_fenced(token);
    core.help(token, Duration::ZERO);
}

fn assert_lowered() {
    assert!(!is_raised(), "{RAISED}");
}

fn spawn(domain: &Arc<Domain>, function: impl FnOnce(&Domain) + 'static) -> thread::JoinHandle<()> {
    let domain = Arc::clone(domain);
    thread::spawn(move || function(&domain))
}

/// The reader is outside any section at the end, and alive: nobody but the two could have lowered it.
#[test]
fn a_section_ends() {
    explore(4, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let helper = spawn(&domain, help);
        drop(guard);
        helper.join().unwrap();
        assert_lowered();
        drop(reader);
    });
}

#[test]
fn a_reader_unregisters() {
    explore(4, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        std::mem::forget(reader.pin());
        let helper = spawn(&domain, help);
        drop(reader);
        assert_lowered();
        helper.join().unwrap();
        assert_lowered();
    });
}

/// The record has a new holder at once, in a section of its own.
#[test]
fn a_record_changes_hands() {
    explore(3, || {
        let domain = Arc::new(domain());
        let mut first = domain.qsbr_reader();
        let helper = spawn(&domain, help);
        first.quiescent();
        drop(first);
        let second = domain.reader();
        drop(second.pin());
        helper.join().unwrap();
        assert_lowered();
    });
}

/// Two help, one of them ends all help as well, and the section ends.
#[test]
fn two_help() {
    explore(3, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let first = spawn(&domain, help);
        let second = spawn(&domain, |domain| {
            help(domain);
            domain.core().end_all_help();
        });
        drop(guard);
        first.join().unwrap();
        second.join().unwrap();
        assert_lowered();
    });
}

/// One section after the other: the help for the first does not end that for the second.
#[test]
fn sections_follow_each_other() {
    explore(3, || {
        let domain = Arc::new(domain());
        let reader = domain.reader();
        let guard = reader.pin();
        let helper = spawn(&domain, |domain| {
            help(domain);
            help(domain);
        });
        drop(guard);
        drop(reader.pin());
        helper.join().unwrap();
        assert_lowered();
    });
}
