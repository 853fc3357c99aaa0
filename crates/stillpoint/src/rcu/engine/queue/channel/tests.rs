//! Where objects are on their way to a reclaimer, and how they are counted there.

use std::sync::{Barrier, Mutex};
use std::thread;

use super::*;
use crate::rcu::engine::core::garbage::free_left;
use crate::rcu::engine::queue::retire_list::Pace;
use crate::rcu::Domain;

/// The numbers of objects that were freed, in order.
type Freed = Arc<Mutex<Vec<usize>>>;

const SIZE: usize = 400;

/// An object of `SIZE` bytes that records when it is freed.
fn numbered(number: usize, freed: &Freed) -> Garbage {
    let freed = Arc::clone(freed);
    let padding = [0_u8; SIZE - 16];
    let garbage = Garbage::callback(move || {
        std::hint::black_box(&padding);
        freed.lock().expect("no thread panics while it holds the lock").push(number);
    });
    assert!((SIZE - 16..=SIZE).contains(&garbage.bytes()), "an object of {} bytes", garbage.bytes());
    garbage
}

/// The bytes that are counted for each numbered object.
fn bytes_of_each() -> usize {
    let garbage = numbered(0, &Freed::default());
    let bytes = garbage.bytes();
    // SAFETY: only this function has the object.
    assert!(unsafe { free_left(garbage) }.is_none());
    bytes
}

struct Scene {
    domain: Domain,
    channel: Channel,
    list: RetireList,
    freed: Freed,
}

impl Scene {
    fn new(domain: Domain, limits: Limits) -> Self {
        let mut list = RetireList::new(Arc::clone(domain.core()), Pace::DEFAULT, limits);
        let channel = Channel::new(Arc::clone(domain.core()), limits).of_list(&mut list);
        Self { domain, channel, list, freed: Freed::default() }
    }

    /// Hands in objects with these numbers, and reserves room for each.
    fn submit(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let garbage = numbered(number, &self.freed);
            self.channel.reserve(garbage.bytes()).expect("there is room");
            self.channel.submit(garbage);
        }
    }

    fn freed(&self) -> Vec<usize> {
        self.freed.lock().expect("no thread panics while it holds the lock").clone()
    }
}

/// Asserts that there is room for exactly this much more.
fn has_room_for(channel: &Channel, objects: usize, bytes: usize) {
    for _ in 0..2 {
        assert_eq!(channel.reserve(bytes + 1), Err(Full::Queue), "for {bytes} bytes");
        assert_eq!(channel.reserve(usize::MAX), Err(Full::Queue));
    }
    for _ in 0..objects {
        assert_eq!(channel.reserve(0), Ok(()), "for {objects} objects");
    }
    assert_eq!(channel.reserve(0), Err(Full::Queue), "for {objects} objects");
    channel.account.give_back_all(objects, 0);
    if objects > 0 {
        assert_eq!(channel.reserve(bytes), Ok(()), "for {bytes} bytes");
        channel.account.give_back(bytes);
    }
}

/// The limits cover all places together, wherever objects are, and wherever they go.
#[test]
fn every_object_is_counted_in_one_place() {
    let limits = Limits { objects: 100, bytes: 100 * SIZE };
    let mut scene = Scene::new(Domain::new(), limits);
    let size = bytes_of_each();
    let left = |objects: usize| (100 - objects, 100 * SIZE - objects * size);
    let check = |channel: &Channel, objects: usize| {
        has_room_for(channel, left(objects).0, left(objects).1);
        assert_eq!(channel.pending(), objects);
    };
    let mut reader = scene.domain.qsbr_reader();
    check(&scene.channel, 0);
    scene.submit(0..70);
    check(&scene.channel, 70);
    assert_eq!(scene.channel.assist(Full::Queue), 0, "the reader is in the way");
    assert_eq!(scene.channel.assisted(), SHARE);
    check(&scene.channel, 70);
    assert!(scene.channel.take_in(&mut scene.list));
    assert_eq!((scene.list.len(), scene.channel.assisted()), (70, 0));
    check(&scene.channel, 70);
    assert!(!scene.channel.take_in(&mut scene.list), "there is nothing more");
    scene.submit(70..80);
    assert_eq!(scene.channel.assist(Full::Queue), 0);
    check(&scene.channel, 80);
    assert_eq!(scene.domain.stats().pending, 80);
    reader.quiescent();
    assert_eq!(scene.channel.assist(Full::Queue), 10);
    check(&scene.channel, 70);
    scene.list.close();
    reader.quiescent();
    assert_eq!(scene.list.advance(usize::MAX), 70);
    check(&scene.channel, 0);
    assert_eq!((scene.domain.stats().pending, scene.freed().len()), (0, 80));
}

/// An object that either limit refuses, that of the queue or that of the domain, takes up nothing.
#[test]
fn an_object_that_is_refused_is_not_counted() {
    let domain = Domain::builder().max_pending(2).build().expect("a limit is no reason to fail");
    let scene = Scene::new(domain, Limits { objects: 3, bytes: 1 << 20 });
    scene.submit(0..2);
    for _ in 0..5 {
        assert_eq!(scene.channel.reserve(0), Err(Full::Domain));
    }
    assert_eq!((scene.channel.pending(), scene.domain.stats().pending), (2, 2));
    scene.channel.charge(7);
    assert_eq!(scene.channel.reserve(0), Err(Full::Queue), "its own limit is found first");
    assert_eq!(
        (scene.channel.pending(), scene.channel.account.bytes.taken()),
        (3, Some(2 * bytes_of_each() + 7))
    );
    scene.channel.account.give_back(7);
}

/// Objects are freed in the order in which they were handed in.
#[test]
fn what_is_taken_in_is_freed_in_order() {
    let mut scene = Scene::new(Domain::new(), Limits::NONE);
    scene.submit(0..200);
    scene.channel.take_in(&mut scene.list);
    scene.submit(200..300);
    scene.channel.take_in(&mut scene.list);
    scene.list.close();
    assert_eq!(scene.list.advance(usize::MAX), 300);
    assert!(scene.freed().into_iter().eq(0..300));
}

/// A handle that assists frees one share at a time, and none while a reader is in the way of the last share.
#[test]
fn an_assistant_frees_one_share() {
    let scene = Scene::new(Domain::new(), Limits::NONE);
    scene.submit(0..200);
    assert_eq!(scene.channel.assist(Full::Queue), SHARE);
    assert_eq!((scene.channel.pending(), scene.freed().len()), (200 - SHARE, SHARE));
    let mut reader = scene.domain.qsbr_reader();
    for _ in 0..3 {
        assert_eq!(scene.channel.assist(Full::Queue), 0);
        assert_eq!(scene.channel.assisted(), SHARE, "the handle takes no second share");
    }
    let started = scene.domain.stats().grace_periods;
    assert_eq!(scene.channel.assist(Full::Queue), 0);
    assert_eq!(scene.domain.stats().grace_periods, started, "the share keeps its grace period");
    reader.quiescent();
    assert_eq!(scene.channel.assist(Full::Queue), SHARE);
    assert_eq!((scene.channel.pending(), scene.freed().len()), (200 - 2 * SHARE, 2 * SHARE));
}

/// What was left to the domain counts only against the domain's limit.
#[test]
fn an_assistant_adopts_for_a_full_domain_only() {
    for (full, freed) in [(Full::Queue, 10), (Full::Domain, SHARE)] {
        let scene = Scene::new(Domain::new(), Limits::NONE);
        for _ in 0..2 * SHARE {
            drop(scene.domain.cell(1).take());
        }
        scene.submit(0..10);
        assert_eq!(scene.channel.assist(full), freed, "{full:?}");
        assert_eq!(scene.domain.stats().pending as usize, 2 * SHARE + 10 - freed);
        assert_eq!(scene.channel.pending(), 0, "no more than that was taken");
    }
}

/// No object stays where no thread would ever look.
#[test]
fn what_a_closed_channel_holds_passes_to_the_domain() {
    let scene = Scene::new(Domain::new(), Limits { bytes: 1 << 20, ..Limits::NONE });
    scene.submit(0..10);
    let mut reader = scene.domain.qsbr_reader();
    assert_eq!(scene.channel.assist(Full::Queue), 0);
    scene.submit(10..20);
    scene.channel.advance(CLOSED);
    assert_eq!(scene.channel.pending(), 20, "the closing thread passes it on");
    scene.channel.pass_on();
    assert_eq!((scene.channel.pending(), scene.domain.stats().pending), (0, 20));
    assert_eq!(scene.channel.account.bytes.taken(), Some(0));
    scene.submit(20..21);
    assert_eq!((scene.channel.pending(), scene.domain.stats().pending), (0, 21), "it came too late");
    let mut heir = scene.domain.reclaimer();
    reader.quiescent();
    heir.poll();
    reader.quiescent();
    assert_eq!((heir.flush(), scene.freed().len()), (Ok(()), 21));
}

/// This holds whether or not anything was handed in since.
#[test]
fn what_is_taken_over_from_an_assistant_is_counted_at_once() {
    for handed_in in [0, 5] {
        let mut scene = Scene::new(Domain::new(), Limits { bytes: 1 << 20, ..Limits::NONE });
        let mut reader = scene.domain.qsbr_reader();
        scene.submit(0..10);
        assert_eq!(scene.channel.assist(Full::Queue), 0, "the reader is in the way");
        scene.submit(10..10 + handed_in);
        assert!(scene.channel.take_in(&mut scene.list));
        assert_eq!((scene.channel.pending(), scene.channel.assisted()), (10 + handed_in, 0));
        assert_eq!(scene.channel.account.bytes.taken(), Some(scene.list.bytes));
        scene.list.close();
        reader.quiescent();
        assert_eq!(scene.list.advance(usize::MAX), 10 + handed_in);
    }
}

/// A handle that assists puts the rest of what it took back on the stack. If the reclaimer is gone, the rest passes to the domain,
/// even if a destructor panics.
#[test]
fn what_an_assistant_puts_back_into_a_closed_channel_passes_to_the_domain() {
    let domain = Domain::new();
    let channel = Arc::new(Channel::new(Arc::clone(domain.core()), Limits::NONE));
    let other = Arc::clone(&channel);
    let closes = Garbage::callback(move || {
        // Stands for a drop of the reclaimer while the handle holds the stack's objects.
        other.phase.fetch_max(CLOSED, Ordering::Release);
        panic!("in a destructor");
    });
    for garbage in (0..2 * SHARE).map(|_| Garbage::callback(|| ())).chain([closes]) {
        channel.reserve(garbage.bytes()).expect("there is room");
        channel.submit(garbage);
    }
    let assists = std::panic::AssertUnwindSafe(|| channel.assist(Full::Queue));
    std::panic::catch_unwind(assists).expect_err("a destructor panics");
    assert_eq!((channel.pending(), domain.stats().pending), (0, SHARE as u64 + 1));
    assert_eq!(domain.reclaimer().poll(), SHARE);
}

/// A destructor may drop the reclaimer. That drop does not find what the handle that assists holds.
#[test]
fn what_an_assistant_leaves_to_a_closed_channel_passes_to_the_domain() {
    let domain = Domain::new();
    let channel = Arc::new(Channel::new(Arc::clone(domain.core()), Limits::NONE));
    let (reader, cell) = (domain.reader(), domain.cell(1));
    let object = cell.protect(&reader);
    let other = Arc::clone(&channel);
    let closes = Garbage::callback(move || {
        other.advance(CLOSED);
        other.pass_on();
    });
    for garbage in [cell.take().expect("it is not empty").into_parts().into_garbage(), closes] {
        channel.reserve(garbage.bytes()).expect("there is room");
        channel.submit(garbage);
    }
    assert_eq!(channel.assist(Full::Queue), 1);
    assert_eq!((channel.pending(), domain.stats().pending), (0, 1));
    let mut heir = domain.reclaimer();
    heir.poll();
    assert_eq!(heir.pending(), 1, "it is held");
    drop(object);
    assert_eq!(heir.poll(), 1);
}

/// All that is left in the list may wait for the caller's region, and yet there is room by what was freed since the caller was
/// refused, or will be by what a handle frees in its turn.
#[test]
fn a_thread_is_not_in_the_way_of_room_that_there_is() {
    let mut scene = Scene::new(Domain::new(), Limits { objects: 2, bytes: usize::MAX });
    let domain = scene.domain.clone();
    let (begun, end) = (Barrier::new(2), Barrier::new(2));
    let retire = |scene: &mut Scene, number: usize| {
        scene.submit(number..number + 1);
        assert!(scene.channel.take_in(&mut scene.list));
        scene.list.close();
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let reader = domain.reader();
            let _guard = reader.pin();
            begun.wait();
            end.wait();
        });
        begun.wait();
        retire(&mut scene, 0);
        let reader = domain.reader();
        let _guard = reader.pin();
        retire(&mut scene, 1);
        end.wait();
        other.join().expect("it does not panic");

        assert_eq!(scene.list.advance(usize::MAX), 1, "only the second one waits for the guard");
        let is_own = |channel: &Channel| channel.is_full_of_own(&mut OwnHolds::of_caller(domain.core()), 0);
        assert!(!is_own(&scene.channel), "there is room");
        retire(&mut scene, 2);
        assert_eq!(scene.channel.reserve(0), Err(Full::Queue));
        assert!(is_own(&scene.channel), "both wait for the guard");
        let turn = scene.channel.begin();
        assert!(!is_own(&scene.channel), "the turn of a handle may give room");
        drop(turn);
        assert!(is_own(&scene.channel));
    });
}
