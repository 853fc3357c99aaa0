//! Every receiver is reached once, in any order of processing, and the report is exact.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Instant;

use super::super::operation::Call;
use super::super::slots::Slot;
use super::super::{Core, Missing, Options, Outcome};
use super::{leave, members, serve, Scripted};
use crate::plan::Acknowledgement;
use crate::plan::Share;
use crate::transport::{Polled, Transport};
use crate::Strategy;

fn ways() -> Vec<Options> {
    let split = |percent| Strategy::Split(Share::percent(percent).expect("from 1 to 99"));
    let strategies = [Strategy::Flat, Strategy::Tree, split(30), split(99), Strategy::Hybrid(16)];
    let options =
        |strategy, acknowledgement, helps| Options { strategy, acknowledgement, helps, traces: true };
    let both = strategies
        .into_iter()
        .flat_map(|strategy| Acknowledgement::ALL.iter().map(move |&to| (strategy, to)));
    both.flat_map(|(strategy, to)| [true, false].map(|helps| options(strategy, to, helps))).collect()
}

/// Multicasts to members that `turn` serves each time the initiator looks, until all are done. Returns how often the function ran.
fn multicast<T: Transport>(
    core: &Core<T>,
    options: Options,
    mut turn: impl FnMut(&Missing),
) -> (Outcome, usize) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let call = Call::owned(move || _ = counter.fetch_add(1, Ordering::Relaxed));
    let look = |missing: &Missing| {
        turn(missing);
        Some(Instant::now())
    };
    // SAFETY: the operation owns the function, which does not panic.
    let outcome = unsafe { core.run_with(options, call, Some(Instant::now()), look) };
    assert!(outcome.missing.is_none() && outcome.panic.is_none());
    assert_eq!(Arc::strong_count(&runs), 1, "the function is dropped when all are done");
    (outcome, runs.load(Ordering::Relaxed))
}

/// One member at a time, from the first or from the last one, while the initiator waits.
#[test]
fn everybody_is_reached_once_in_whatever_order_they_come_to_it() {
    for options in ways() {
        for backwards in [false, true] {
            let core = &*Core::new(Polled);
            let members = members(core, 20);
            let mut turns = 0;
            let mut served = vec![0; 20];
            let (outcome, runs) = multicast(core, options, |_| {
                let number = if backwards { 19 - turns % 20 } else { turns % 20 };
                served[number] += serve(core, members[number]);
                turns += 1;
            });
            assert_eq!((outcome.tally.receivers, runs, outcome.tally.adopted), (20, 20, 0), "{options:?}");
            assert!(served.iter().all(|&served| served == 1), "{options:?}: {served:?}");
            let (shape, planned) = (outcome.tally.shape.expect("traced"), options.strategy.shape(20));
            assert_eq!((outcome.tally.sends, shape.sends), (planned.sends, planned.sends));
            if options.helps {
                // No receiver processes its message before the initiator has sent everything itself.
                assert_eq!(outcome.tally.sends + outcome.tally.helped, 20, "{options:?}");
                assert_eq!(shape.path, 20, "one after the other");
            } else {
                assert_eq!((shape, outcome.tally.helped), (planned, 0), "{options:?}");
            }
        }
    }
}

/// Each member leaves when it is notified, or when the next one is: its range stays with the sender.
#[test]
fn what_was_delegated_to_one_that_leaves_is_forwarded() {
    for options in ways() {
        for leaving in 1..=9 {
            let core = &*Core::new(Polled);
            let members = members(core, 9);
            let mut has_left = false;
            let (outcome, runs) = multicast(core, options, |_| {
                if !has_left {
                    leave(core, members[leaving - 1]);
                    has_left = true;
                }
                for member in members.iter().filter(|member| member.mailbox.is_open()) {
                    serve(core, member);
                }
            });
            let adopted = outcome.tally.adopted as usize;
            // The member that left ran the function while it left, unless it had no message yet.
            assert_eq!(runs, 9 - adopted, "{options:?}, {leaving} leaves");
            assert!(adopted <= 1 && (!options.helps || adopted == 0), "{options:?}, {leaving} leaves");
        }
    }
}

/// All other members leave when the first one is notified. Only the notified member is left, and runs the function.
#[test]
fn those_who_leave_before_they_are_told_are_adopted() {
    for options in ways() {
        let members = Arc::new(std::sync::OnceLock::<Vec<usize>>::new());
        let others = Arc::clone(&members);
        let core = &*Core::new(Scripted(move |tid: u32| {
            for &member in others.get().expect("they have joined") {
                // SAFETY: a place of the group, which is alive.
                let member = unsafe { &*std::ptr::with_exposed_provenance::<Slot>(member) };
                if member.tid() != tid && member.mailbox.is_empty() {
                    member.mailbox.close();
                }
            }
        }));
        let slots = super::members(core, 9);
        members
            .set(slots.iter().map(|&slot| std::ptr::from_ref(slot).expose_provenance()).collect())
            .unwrap();
        let (outcome, runs) = multicast(core, options, |missing| {
            assert_eq!(missing.threads.len(), 1, "members that have left are waited for");
            slots.iter().for_each(|slot| _ = serve(core, slot));
        });
        let tally = outcome.tally;
        assert_eq!((tally.receivers, tally.adopted, runs), (9, 8, 1), "{options:?}");
        // The first group goes to the member that is notified. The senders try all the others one after the other.
        let group = options.strategy.resolve(9).group(9);
        assert_eq!(tally.sends, 1 + 9 - group, "{options:?}");
        assert_eq!(tally.helped, if options.helps { group - 1 } else { 0 }, "{options:?}");
        let path = if options.helps { 9 } else { tally.sends.max(group) };
        assert_eq!(tally.shape.expect("traced").path, path, "{options:?}");
    }
}

/// A sender that adopts a long chain needs no deep stack: it may be a signal handler.
#[test]
fn a_chain_of_those_who_have_left_is_no_recursion() {
    let strategy = Share::percent(99).map(Strategy::Split).expect("from 1 to 99");
    let options =
        Options { strategy, acknowledgement: Acknowledgement::Combining, helps: false, traces: false };
    let adopts = move || {
        let core = &*Core::new(Polled);
        const MEMBERS: u32 = if cfg!(miri) { 100 } else { 4_000 };
        let members = members(core, MEMBERS);
        let (outcome, runs) = multicast(core, options, |_| {
            members
                .iter()
                .filter(|member| member.mailbox.is_empty())
                .for_each(|member| member.mailbox.close());
            members.iter().for_each(|member| _ = serve(core, member));
        });
        let adopted = outcome.tally.adopted as usize;
        assert!(adopted > 90 * MEMBERS as usize / 100, "{adopted} have left");
        assert_eq!(adopted + runs, MEMBERS as usize);
    };
    let small = std::thread::Builder::new().stack_size(64 << 10);
    small.spawn(adopts).expect("threads can be started").join().expect("it does not panic");
}

/// Adopted receivers get their messages after the one that was refused: the path is as long as if no member had left.
#[test]
fn a_path_goes_through_those_who_have_left() {
    let strategy = Share::percent(99).map(Strategy::Split).expect("from 1 to 99");
    for &acknowledgement in Acknowledgement::ALL {
        let core = &*Core::new(Polled);
        let members = members(core, 20);
        let listed: Vec<u32> = core.slots.view().iter().map(Slot::tid).collect();
        // The first member forwards to the third one, which forwards to the fifth one, and so on.
        let mut third = Some(members[listed[3] as usize - 1]);
        let options = Options { strategy, acknowledgement, helps: false, traces: true };
        let (outcome, runs) = multicast(core, options, |_| {
            third.take().into_iter().for_each(|third| leave(core, third));
            for member in members.iter().filter(|member| member.mailbox.is_open()) {
                serve(core, member);
            }
        });
        let shape = outcome.tally.shape.expect("traced");
        assert_eq!((outcome.tally.adopted, runs, shape.path), (1, 19, strategy.shape(20).path));
    }
}

/// Reports name a member that forwards, and a receiver of its message. A receiver without a message is not missing yet.
#[test]
fn a_member_is_told_of_once_it_has_mail_only() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let core = &*Core::new(Scripted(move |tid| list.lock().unwrap().push(tid)));
    let members = members(core, 7);
    let options = Options { strategy: Strategy::Tree, helps: false, ..Options::default() };
    let mut seen = Vec::new();
    let mut look = |missing: &Missing| {
        let mut waited = missing.threads.clone();
        waited.sort_unstable();
        seen.push(waited);
        let next = members.iter().find(|member| !member.mailbox.is_empty());
        next.inspect(|member| _ = serve(core, member)).map(|_| Instant::now())
    };
    // SAFETY: the function needs nothing.
    let outcome = unsafe { core.run_with(options, Call::owned(|| {}), Some(Instant::now()), &mut look) };
    assert!(outcome.missing.is_none());
    let count = || told.lock().unwrap().len();
    let mut ids = told.lock().unwrap().clone();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7], "each member is notified once");
    assert_eq!((seen.len(), seen[0].len()), (7, 3), "seven looks; at the first, three members had a message");
    assert!(seen.iter().all(|waited| !waited.is_empty() && waited.len() <= 4), "{seen:?}");
    // A second message to a member that has not polled is not announced: the member takes both.
    let options = Options { strategy: Strategy::Flat, ..options };
    for _ in 0..2 {
        // SAFETY: the function needs nothing.
        unsafe { core.run(options, Call::owned(|| {}), Some(Instant::now())) };
    }
    assert_eq!(count(), 14);
    assert!(members.iter().all(|member| serve(core, member) == 2));
}

/// Each operation begins at another receiver, by its number: otherwise all trees would have the same inner nodes.
#[test]
fn each_operation_begins_where_its_number_says() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let core = &*Core::new(Scripted(move |tid| list.lock().unwrap().push(tid)));
    let members = members(core, 40);
    let listed: Vec<u32> = core.slots.view().iter().map(Slot::tid).collect();
    let options = Options { strategy: Strategy::Flat, ..Options::default() };
    for number in 0..8 {
        // SAFETY: the function needs nothing.
        let outcome = unsafe { core.run(options, Call::owned(|| {}), Some(Instant::now())) };
        assert!(
            outcome.missing.is_some(),
            "the operation must linger, so that the next multicast takes another one"
        );
        // Counted from the upper end of the range. The last member has not polled since the first operation, so it is
        // not notified again.
        let begin = crate::rotation(number, 40) as usize;
        let expected = (0..40).rev().map(|place| listed[(place + begin) % 40]);
        let expected: Vec<u32> = expected.filter(|&tid| number == 0 || tid != 40).collect();
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), expected, "operation {number}");
        members[..39].iter().for_each(|member| assert_eq!(serve(core, member), 1));
    }
    assert_eq!((serve(core, members[39]), core.operations()), (8, 8));
}

/// A receiver is still forwarding when the initiator has helped with all other ranges and fallen asleep. The range that the receiver
/// then delegates is before the place where the initiator's last search ended, and its receiver does not process it.
#[test]
fn what_is_delegated_late_is_looked_after_as_well() {
    /// Called by a thread that notifies a member.
    struct Script {
        numbers: std::sync::OnceLock<Vec<u32>>,
        sent: std::sync::Mutex<Vec<usize>>,
        /// The initiator waits for the slow member, which waits for the test.
        stopped: std::sync::Barrier,
        released: std::sync::Barrier,
    }
    thread_local! {
        static IS_SLOW: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let script = Arc::new(Script {
        numbers: std::sync::OnceLock::new(),
        sent: std::sync::Mutex::default(),
        stopped: std::sync::Barrier::new(2),
        released: std::sync::Barrier::new(2),
    });
    let inside = Arc::clone(&script);
    let (go, gone) = mpsc::channel();
    let go = std::sync::Mutex::new(go);
    let core = &*Core::new(Scripted(move |tid: u32| {
        let numbers = inside.numbers.get().expect("they have joined");
        let number = numbers.iter().position(|&one| one == tid).expect("a member");
        if number == 7 {
            go.lock().unwrap().send(()).expect("it waits");
            inside.stopped.wait();
        } else if number == 11 && IS_SLOW.get() {
            inside.stopped.wait();
            inside.released.wait();
        }
        inside.sent.lock().unwrap().push(number);
    }));
    let members = members(core, 15);
    script.numbers.set(core.slots.view().iter().map(Slot::tid).collect()).unwrap();
    let slow = members[script.numbers.get().unwrap()[7] as usize - 1];
    let options = Options { strategy: Strategy::Tree, ..Options::default() };
    // The second time with the same operation, and with a limit that is far away.
    for round in 0..2 {
        let deadline = (round == 1).then(|| Instant::now() + 2 * super::LONG);
        script.sent.lock().unwrap().clear();
        let (outcome, is_told) = thread::scope(|scope| {
            // SAFETY: the function needs nothing.
            let initiator = scope.spawn(move || unsafe { core.run(options, Call::owned(|| {}), deadline) });
            gone.recv().expect("the seventh one is told");
            let served = scope.spawn(move || {
                IS_SLOW.set(true);
                serve(core, slow)
            });
            // Waits until the initiator sleeps.
            thread::sleep(std::time::Duration::from_millis(30));
            script.released.wait();
            assert_eq!(served.join().expect("it does not panic"), 1);
            // The ninth member, to which the tenth is delegated, does not process its message.
            let begun = Instant::now();
            let is_told = || script.sent.lock().unwrap().len() == 15;
            while !is_told() && begun.elapsed() < super::LONG {
                thread::yield_now();
            }
            let is_told = is_told();
            while !initiator.is_finished() {
                members.iter().for_each(|member| _ = serve(core, member));
                thread::yield_now();
            }
            (initiator.join().expect("it does not panic"), is_told)
        });
        assert!(outcome.missing.is_none() && is_told, "round {round}: {:?} were told", script.sent);
        assert_eq!(core.operations(), 1);
    }
}

/// An owner that has slept is awake: it can fall asleep again, and is notified of messages.
#[test]
fn who_wakes_up_is_awake() {
    let core = &*Core::new(Polled);
    // SAFETY: places live as long as their group.
    let own = unsafe { core.join().as_ref() };
    for _ in 0..2 {
        assert!(core.doze(own, Some(std::time::Duration::ZERO)));
        assert!(own.mailbox.doze(), "it sleeps no more");
        own.mailbox.rouse();
    }
    assert!(core.leave(own));
}

/// Messages go only to members with an open mailbox.
#[test]
fn who_is_about_to_leave_is_not_sent_to() {
    for options in ways() {
        let core = &*Core::new(Polled);
        let members = members(core, 3);
        members[1].mailbox.close();
        let (outcome, runs) = multicast(core, options, |_| {
            members.iter().for_each(|member| _ = serve(core, member));
        });
        assert_eq!((outcome.tally.receivers, outcome.tally.adopted, runs), (2, 0, 2), "{options:?}");
    }
}

/// A thread that leaves is not counted any more, and runs the functions that were already sent to it.
#[test]
fn who_leaves_is_no_member_and_nobody_else_serves_it() {
    let core = &*Core::new(Polled);
    let member = members(core, 1)[0];
    let counts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let count = Arc::clone(&counts);
    let place = std::ptr::from_ref(core).expose_provenance();
    let call = Call::owned(move || {
        // SAFETY: the group is alive.
        let core = unsafe { &*std::ptr::with_exposed_provenance::<Core<Polled>>(place) };
        count.lock().unwrap().push(core.members());
    });
    // SAFETY: the operation owns the function.
    assert!(unsafe { core.run(Options::default(), call, Some(Instant::now())) }.missing.is_some());
    assert_eq!((core.members(), core.drain(member)), (1, 0), "the calling thread is another one");
    assert!(!member.mailbox.is_empty());
    leave(core, member);
    assert_eq!((*counts.lock().unwrap()).as_slice(), [0], "it is not counted any more");
}

/// The thread has forgotten as many registrations as 32 bits can count.
#[test]
fn who_forgets_its_registrations_stays_a_member() {
    let core = &*Core::new(Polled);
    // SAFETY: places live as long as their group.
    let own = unsafe { core.join().as_ref() };
    own.set_joins(u32::MAX.into());
    core.join();
    assert!(!core.leave(own), "the other registrations were lost");
    assert_eq!((core.members(), own.joins()), (1, u32::MAX.into()));
}
