//! Which calls wake sleeping threads, and which do not: the tests cover each notification.
//!
//! No thread sleeps here, and no time is measured: see `Event::is_notified_by`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use super::engine::core::garbage::Garbage;
use super::engine::queue::account::Limits;
use super::engine::queue::channel::{Channel, ABANDONED, CLOSED, STOPPING};
use super::engine::queue::retire_list::Full;
use super::limits::WhenFull;
use super::{Domain, Reclaimer, Retired};

fn is_notified_by(domain: &Domain, action: impl FnOnce()) -> bool {
    domain.core().event().is_notified_by(action)
}

fn retired(domain: &Domain) -> Retired<i32> {
    domain.cell(1).take().expect("the cell is full")
}

fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

fn channel(domain: &Domain, objects: usize) -> Channel {
    Channel::new(Arc::clone(domain.core()), Limits { objects, ..Limits::NONE })
}

/// Hands in an object that has no room to give back.
fn submit(channel: &Channel) {
    channel.charge(0);
    channel.submit(Garbage::callback(|| ()));
}

#[test]
fn a_submission_wakes_a_reclaimer_that_has_enough() {
    let domain = Domain::new();
    for enough in 1..5 {
        let channel = channel(&domain, usize::MAX);
        channel.set_enough(enough);
        for number in 1..8 {
            assert_eq!(channel.has_work(enough), number > enough, "{} of {enough}", number - 1);
            assert_eq!(
                is_notified_by(&domain, || submit(&channel)),
                number >= enough,
                "{number} of {enough}"
            );
        }
    }
}

#[test]
fn each_phase_and_the_last_handle_wake_the_reclaimer() {
    let domain = Domain::new();
    let channel = channel(&domain, usize::MAX);
    channel.add_handle();
    channel.add_handle();
    assert!(!is_notified_by(&domain, || channel.remove_handle()), "there is another one");
    assert!(is_notified_by(&domain, || channel.remove_handle()));
    assert_eq!(channel.aim(), STOPPING);
    for phase in [STOPPING, ABANDONED, CLOSED] {
        assert!(is_notified_by(&domain, || channel.advance(phase)));
        assert_eq!((channel.phase(), channel.aim()), (phase, phase));
    }
    channel.advance(STOPPING);
    assert_eq!(channel.phase(), CLOSED, "a phase never goes back to an earlier one");
}

/// A background reclaimer may be asleep without a limit.
#[test]
fn what_is_left_to_the_domain_wakes_reclaimers() {
    let domain = Domain::new();
    assert!(is_notified_by(&domain, || drop(retired(&domain))));
    let mut reclaimer = eager(&domain);
    assert!(!is_notified_by(&domain, || assert_eq!(reclaimer.poll(), 1)), "nothing is left");
    reclaimer.retire(retired(&domain)).expect("there is room");
    assert!(is_notified_by(&domain, || drop(reclaimer)));
    // What is left was not visible meanwhile.
    drop(retired(&domain));
    let mut small = domain.reclaimer_builder().max_pending(1).fence_interval(Duration::ZERO).build();
    assert!(is_notified_by(&domain, || assert_eq!(small.poll(), 1)), "another one is left");
    assert!(!is_notified_by(&domain, || assert_eq!(small.poll(), 1)), "that was the last one");
    let background = domain.background();
    background.retire_handle().retire(retired(&domain)).expect("there is room");
    assert!(is_notified_by(&domain, || drop(background)));
}

/// In a domain with a limit, a poll that frees wakes the threads that wait for room in the domain.
#[test]
fn what_is_freed_in_a_domain_with_a_limit_wakes_those_who_wait_for_room() {
    let limited = Domain::builder().max_pending(100).build().expect("a limit is no reason to fail");
    for (domain, wakes) in [(&limited, true), (&Domain::new(), false)] {
        let mut reclaimer = eager(domain);
        reclaimer.retire(retired(domain)).expect("there is room");
        let reader = domain.reader();
        let guard = reader.pin();
        reclaimer.retire(retired(domain)).expect("there is room");
        assert!(!is_notified_by(domain, || assert_eq!(reclaimer.poll(), 0)), "a guard is held");
        drop(guard);
        assert_eq!(is_notified_by(domain, || assert_eq!(reclaimer.poll(), 2)), wakes);
    }
}

/// A run that frees wakes the threads that wait for room in the queue, also if a destructor panicked.
#[test]
fn what_a_background_reclaimer_frees_wakes_those_who_wait_for_room() {
    let domain = Domain::new();
    let mut background = domain.background();
    let handle = background.retire_handle();
    handle.stop();
    assert!(!is_notified_by(&domain, || background.run()), "there is nothing to free");
    handle.retire(retired(&domain)).expect("it is not closed");
    assert!(is_notified_by(&domain, || background.run()));
    handle.defer(|| panic!("in a destructor"));
    assert!(is_notified_by(&domain, || {
        catch_unwind(AssertUnwindSafe(|| background.run())).expect_err("it is resumed at the end");
    }));
}

/// The reclaimer may have fallen asleep without a limit before, and who submitted finds nothing on the stack: a handle that has taken it
/// and leaves it tells.
#[test]
fn a_handle_that_leaves_an_object_wakes_the_reclaimer() {
    let domain = Domain::new();
    let channel = channel(&domain, usize::MAX);
    let mut reader = domain.qsbr_reader();
    submit(&channel);
    assert!(is_notified_by(&domain, || channel.tell_of_submissions()), "it is on the stack");
    assert!(is_notified_by(&domain, || assert_eq!(channel.assist(Full::Queue), 0)), "a reader is in the way");
    assert!(!is_notified_by(&domain, || channel.tell_of_submissions()), "it is not on the stack");
    reader.quiescent();
    assert_eq!(channel.assist(Full::Queue), 1);
    assert!(!is_notified_by(&domain, || assert_eq!(channel.assist(Full::Queue), 0)), "nothing is left");
}

#[test]
fn what_a_handle_frees_wakes_those_who_wait_for_room() {
    let domain = Domain::new();
    let channel = channel(&domain, usize::MAX);
    submit(&channel);
    let mut reader = domain.qsbr_reader();
    assert_eq!(channel.assist(Full::Queue), 0, "a reader is in the way");
    assert!(channel.has_work(9) && channel.pending() > 0, "the handle has left an object in the shared list");
    assert_eq!(channel.pending(), 1);
    reader.quiescent();
    assert!(is_notified_by(&domain, || assert_eq!(channel.assist(Full::Queue), 1)));
    assert!(!channel.has_work(1) && channel.pending() == 0);
    assert_eq!(channel.pending(), 0);
    assert!(!is_notified_by(&domain, || assert_eq!(channel.assist(Full::Queue), 0)), "there is nothing");

    let background =
        domain.reclaimer_builder().max_pending(1).when_full(WhenFull::Reclaim).build_background();
    let handle = background.retire_handle();
    handle.retire(retired(&domain)).expect("there is room");
    reader.quiescent();
    // The reader was quiescent before the retirement started its grace period.
    let error = handle.retire(retired(&domain)).expect_err("the reader is in the way");
    reader.quiescent();
    assert!(is_notified_by(&domain, || handle.retire(error.into_inner()).expect("the first one is freed")));
}

/// A reader wakes the thread that has asked it, once.
#[test]
fn a_reader_that_was_asked_wakes_its_waiter() {
    let domain = Domain::new();
    let reader = domain.reader();
    let ask = || reader.record().ask_for_attention();
    let guard = reader.pin();
    let nested = reader.pin();
    ask();
    assert!(!is_notified_by(&domain, || drop(guard)), "the region goes on");
    assert!(is_notified_by(&domain, || drop(nested)));
    assert!(!is_notified_by(&domain, || drop(reader.pin())), "no thread has asked again");
    ask();
    assert!(is_notified_by(&domain, || drop(reader)));

    let mut reader = domain.qsbr_reader();
    assert!(!is_notified_by(&domain, || reader.quiescent()));
    reader.record().ask_for_attention();
    assert!(
        !is_notified_by(&domain, || reader.quiescent()),
        "no grace period has begun: the section goes on"
    );
    domain.start();
    assert!(is_notified_by(&domain, || reader.quiescent()));
    reader.record().ask_for_attention();
    assert!(is_notified_by(&domain, || reader.offline(|| ())));
    reader.record().ask_for_attention();
    let mut offline = None;
    assert!(is_notified_by(&domain, || offline = Some(reader.go_offline())));
    let reader = offline.take().expect("it is offline").go_online();
    reader.record().ask_for_attention();
    assert!(is_notified_by(&domain, || drop(reader)));
}

/// No thread is woken for objects that may not be adopted yet; once they may, all are.
#[test]
fn the_end_of_a_collection_wakes_those_who_would_adopt() {
    let domain = Domain::new();
    let core = domain.core();
    let mut reclaimer = eager(&domain);
    let collection = core.collect_orphans(|| false).expect("no other collection runs");
    drop(retired(&domain));
    assert!(core.has_orphans() && !core.has_adoptable());
    assert!(
        !is_notified_by(&domain, || assert_eq!(reclaimer.poll(), 0)),
        "it may not adopt during a collection"
    );
    let mut collection = Some(collection);
    assert!(is_notified_by(&domain, || drop(collection.take())));
    assert!(core.has_adoptable());
    assert_eq!(reclaimer.poll(), 1);
}

/// A background reclaimer uses no processor time while it has nothing to do, however long that is.
#[cfg(not(miri))]
#[test]
fn a_background_reclaimer_sleeps_while_a_barrier_collects() {
    let domain = Domain::new();
    let mut background = domain.background();
    let handle = background.retire_handle();
    let collection = domain.core().collect_orphans(|| false).expect("no other collection runs");
    drop(retired(&domain));
    let run = std::thread::spawn(move || {
        background.run();
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is alive for the call.
        let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
        assert_eq!(answer, 0);
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(domain.stats().freed, 0);
    drop(collection);
    handle.stop();
    let used = run.join().expect("no destructor panics");
    assert_eq!(domain.stats().freed, 1);
    assert!(used < Duration::from_millis(30), "the idle reclaimer used {used:?} of processor time");
}
