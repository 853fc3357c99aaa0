//! Nodes in the user's own structures. Their wheel does the same as the wheel with values, in the same order, and does
//! not touch a node after it was taken out.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ptr::NonNull;

use stillpoint::timer::{Node, NodeWheel, Popped, Schedule, Wheel};

use crate::random::Random;

/// A structure whose node is not its first field.
struct Session {
    number: u64,
    timeout: Node,
}

fn leak(number: u64) -> NonNull<Session> {
    NonNull::from(Box::leak(Box::new(Session { number, timeout: Node::new() })))
}

fn node(session: NonNull<Session>) -> NonNull<Node> {
    // SAFETY: the result is within the same allocation.
    unsafe { session.byte_add(offset_of!(Session, timeout)).cast() }
}

fn session(node: NonNull<Node>) -> NonNull<Session> {
    // SAFETY: every node here is part of a session.
    unsafe { node.byte_sub(offset_of!(Session, timeout)).cast() }
}

/// Frees the memory at once, and returns the session's number.
fn free(session: NonNull<Session>) -> u64 {
    // SAFETY: the session was leaked by `leak`, and its node is not in the wheel.
    unsafe { Box::from_raw(session.as_ptr()) }.number
}

fn draw(random: &mut Random) -> u64 {
    random.below(usize::MAX) as u64
}

/// Both wheels, and the sessions in them.
struct Twins {
    nodes: NodeWheel,
    values: Wheel<u64>,
    sessions: BTreeMap<u64, (NonNull<Session>, stillpoint::timer::Key)>,
}

impl Twins {
    fn look(&self) {
        assert_eq!(self.nodes.len(), self.values.len());
        assert_eq!(self.nodes.next_deadline(), self.values.next_deadline());
        assert_eq!(self.nodes.now(), self.values.now());
        let deadline = |(_, key): &(_, _)| self.values.deadline(*key);
        let earliest = self.sessions.values().filter_map(deadline).min();
        assert_eq!(self.nodes.earliest_deadline(), earliest);
        assert_eq!(self.values.earliest_deadline(), earliest);
        let (nodes, values) = (self.nodes.stats(), self.values.stats());
        assert_eq!((nodes.moved, nodes.levels), (values.moved, values.levels));
    }
}

#[test]
fn a_wheel_over_nodes_does_what_the_other_one_does() {
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let steps = if cfg!(miri) { 200 } else { 3_000 };
    for round in 0..rounds {
        let mut random = Random::new(round + 1);
        let begin = if round % 4 == 0 { u64::MAX - (1 << 40) } else { draw(&mut random) >> 20 };
        let mut twins =
            Twins { nodes: NodeWheel::new(begin), values: Wheel::new(begin), sessions: BTreeMap::new() };
        for number in 0..steps {
            let now = twins.values.now();
            let later = now.saturating_add(draw(&mut random) >> (24 + draw(&mut random) % 40));
            let any = draw(&mut random) as usize % twins.sessions.len().max(1);
            let one =
                twins.sessions.iter().nth(any).map(|(number, (session, key))| (*number, *session, *key));
            match (draw(&mut random) % 10, one) {
                (0..=3, _) | (_, None) => {
                    let schedule = Schedule::at(later);
                    let schedule = if number % 5 == 0 { schedule.coarse() } else { schedule };
                    let session = leak(number);
                    // SAFETY: the session is leaked until its node is out of the wheel, and only the wheel uses the
                    // node.
                    unsafe { twins.nodes.add(node(session), schedule) };
                    let key = twins.values.add(schedule, number).unwrap();
                    twins.sessions.insert(number, (session, key));
                }
                (4 | 5, Some((number, session, key))) => {
                    // SAFETY: the node is in the wheel.
                    assert!(unsafe { twins.nodes.cancel(node(session)) });
                    assert_eq!(twins.values.cancel(key), Some(free(session)));
                    twins.sessions.remove(&number);
                }
                (6, Some((_, session, key))) => {
                    // SAFETY: the node is in the wheel.
                    unsafe {
                        assert!(twins.nodes.reset(node(session), later));
                        assert_eq!(twins.nodes.deadline(node(session)), Some(later));
                    }
                    assert!(twins.values.reset(key, later));
                }
                (7 | 8, _) => {
                    let then = if draw(&mut random) % 8 == 0 {
                        later
                    } else {
                        now.saturating_add(draw(&mut random) % 200)
                    };
                    twins.nodes.advance(then);
                    twins.values.advance(then);
                    for _ in 0..draw(&mut random) % 100 {
                        let popped = twins.nodes.pop().map(|node| free(session(node)));
                        let value = twins.values.pop().and_then(|Popped { value, .. }| value);
                        assert_eq!(popped, value);
                        let Some(number) = value else { break };
                        twins.sessions.remove(&number);
                    }
                }
                _ if number % 50 == 0 => {
                    let then = now.saturating_sub(draw(&mut random) % 1_000);
                    // What is aside does not expire, and is filed again.
                    if number % 100 == 0 {
                        twins.nodes.set_aside();
                        twins.nodes.advance(now.saturating_add(2_000));
                        assert_eq!(twins.nodes.pop(), None);
                    }
                    twins.nodes.set_time(then);
                    twins.values.set_time(then);
                }
                _ => {}
            }
            twins.look();
        }
        let mut left = 0;
        twins.nodes.set_aside();
        while let Some(node) = if left % 2 == 0 { twins.nodes.take_aside() } else { twins.nodes.take_any() } {
            assert!(twins.sessions.contains_key(&free(session(node))));
            left += 1;
        }
        assert_eq!((left, twins.nodes.next_deadline()), (twins.sessions.len(), None));
    }
}

/// Each callback frees the memory of its own timer, and of other timers that are due and were not popped.
#[test]
fn memory_may_be_gone_as_soon_as_a_timer_is_stopped() {
    let mut wheel = NodeWheel::new(0);
    let mut sessions: Vec<_> = (0..30).map(leak).collect();
    for (at, session) in sessions.iter().enumerate() {
        // SAFETY: the session is leaked until its node is out of the wheel, and only the wheel uses the node.
        unsafe { wheel.add(node(*session), Schedule::at(at as u64 % 3 * 40)) };
    }
    wheel.advance(100);
    let mut fired = 0;
    while let Some(popped) = wheel.pop() {
        let own = session(popped);
        sessions.retain(|other| *other != own);
        free(own);
        fired += 1;
        for _ in 0..2 {
            let Some(other) = sessions.pop() else { break };
            // SAFETY: the node is still in the wheel: popped sessions are not in the list any more.
            assert!(unsafe { wheel.cancel(node(other)) });
            free(other);
        }
    }
    assert_eq!((fired, wheel.len(), sessions.len()), (10, 0, 0));
}

#[test]
fn a_node_is_used_again_from_its_own_callback() {
    let mut wheel = NodeWheel::new(0);
    let session = leak(1);
    // SAFETY: the session is leaked until the end of the test.
    unsafe { wheel.add(node(session), Schedule::at(10)) };
    for beat in 1..=5 {
        assert_eq!((wheel.pop(), wheel.len()), (None, 1));
        wheel.advance(10 * beat);
        let popped = wheel.pop().unwrap();
        // SAFETY: the session is leaked until the end of the test, and its node was popped.
        unsafe {
            assert!(!wheel.contains(popped) && !wheel.cancel(popped) && !wheel.reset(popped, 1));
            assert_eq!((*session.as_ptr()).number, 1);
            wheel.add(popped, Schedule::after(10));
            assert_eq!(wheel.deadline(popped), Some(10 * beat + 10));
        }
    }
    // A node that is due already waits for the next advance, as in a poll. SAFETY: the node is valid, and in this
    // wheel.
    assert!(unsafe { wheel.reset(node(session), 0) });
    assert_eq!(wheel.pop(), None);
    wheel.advance(50);
    assert_eq!(wheel.pop(), Some(node(session)));
    free(session);
}

/// Dropping the wheel does not touch its nodes.
#[test]
fn a_wheel_that_goes_leaves_its_nodes_as_they_are() {
    let mut wheel = NodeWheel::new(0);
    let sessions = [leak(1), leak(2)];
    for session in sessions {
        // SAFETY: the session is leaked until the wheel is gone.
        unsafe { wheel.add(node(session), Schedule::at(10)) };
    }
    // SAFETY: nothing accesses the session any more: the wheel is only dropped.
    unsafe { drop(Box::from_raw(sessions[0].as_ptr())) };
    drop(wheel);
    let mut other = NodeWheel::new(0);
    // SAFETY: the first wheel is gone, so the node may be written to. The session stays until its node is popped.
    unsafe {
        node(sessions[1]).write(Node::new());
        other.add(node(sessions[1]), Schedule::at(5));
    }
    other.advance(5);
    assert_eq!(free(session(other.pop().unwrap())), 2);
}

/// The wheel of one thread is under a lock, and other threads add and cancel, as through a C interface.
#[test]
fn threads_share_a_wheel_under_a_lock() {
    let wheel = std::sync::Mutex::new(NodeWheel::new(0));
    let steps = if cfg!(miri) { 30 } else { 10_000 };
    let fired = std::thread::scope(|scope| {
        let add = || {
            let mut cancelled = 0;
            for step in 0..steps {
                let one = leak(step);
                let mut wheel = wheel.lock().unwrap();
                let at = wheel.now() + step % 100;
                // SAFETY: the session is leaked until its node is out of the wheel, and the node is used only under the
                // lock.
                unsafe { wheel.add(node(one), Schedule::at(at)) };
                // SAFETY: the session is leaked. Its node is in the wheel or in none: it is not popped while this
                // thread holds the lock.
                if step % 2 == 0 && unsafe { wheel.cancel(node(one)) } {
                    cancelled += 1;
                    free(one);
                }
            }
            cancelled
        };
        let adders = [scope.spawn(add), scope.spawn(add)];
        let mut fired = 0;
        let mut fire = || {
            let mut wheel = wheel.lock().unwrap();
            let now = wheel.now() + 1;
            wheel.advance(now);
            let popped = wheel.pop();
            drop(wheel);
            fired += u64::from(popped.map(|node| free(session(node))).is_some());
        };
        while !adders.iter().all(|adder| adder.is_finished()) {
            fire();
        }
        let cancelled: u64 = adders.into_iter().map(|adder| adder.join().unwrap()).sum();
        while !wheel.lock().unwrap().is_empty() {
            fire();
        }
        assert_eq!(cancelled, steps);
        fired
    });
    assert_eq!(fired, steps);
}
