//! Typed links: walks under a guard and hand over hand, against a thread that unlinks.

use std::sync::Arc;

use loom::thread;
use stillpoint_sys::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{domain, explore, Object};
use crate::rcu::link::{Atomic, Shared, Unprotected};
use crate::rcu::Domain;

/// The tag of a node that is about to be unlinked.
const MARK: usize = 1;

/// A node has the alignment of its object, so the quarantine keeps its memory from being reused for a while.
struct Node {
    object: Object,
    next: Atomic<Node>,
}

impl Node {
    fn before(next: Atomic<Node>) -> Self {
        Self { object: Object::new(), next }
    }
}

/// A chain of nodes.
struct List {
    head: Atomic<Node>,
    domain: Domain,
}

impl List {
    fn new(nodes: usize) -> Arc<Self> {
        let head = (0..nodes).fold(Atomic::null(), |next, _| Atomic::new(Node::before(next)));
        Arc::new(Self { head, domain: domain() })
    }

    /// Marks the first nodes one after the other, unlinks each, and retires it. Only one thread does this.
    fn remove_first(&self, nodes: usize) {
        let mut reclaimer = self.domain.reclaimer();
        for _ in 0..nodes {
            let first = self.head.load(Relaxed, &Unprotected);
            // SAFETY: only this thread unlinks.
            let node = unsafe { first.as_ref() }.expect("the list has this many nodes");
            let next = node.next.fetch_or(MARK, AcqRel, &Unprotected);
            self.head.store(next, Release);
            // SAFETY: it was unlinked above, and no other thread retires it.
            reclaimer.retire(unsafe { first.into_retired(&self.domain) }).expect("there is room");
            reclaimer.poll();
        }
    }

    /// Ends the list: frees at once what is linked.
    fn clear(&self) {
        let mut first = self.head.swap(Shared::null(), AcqRel, &Unprotected);
        // SAFETY: no other thread uses the list any more.
        while let Some(node) = unsafe { first.with_tag(0).into_owned() } {
            first = node.next.load(Acquire, &Unprotected);
        }
    }
}

/// Runs two threads: one walks, the other removes the first nodes.
fn against_removal(nodes: usize, removed: usize, walk: impl Fn(&List) + Copy + 'static) {
    let list = List::new(nodes);
    let walker = {
        let list = Arc::clone(&list);
        thread::spawn(move || walk(&list))
    };
    list.remove_first(removed);
    walker.join().unwrap();
    list.clear();
}

/// A reader on an unlinked node goes on to the next node, which is removed as well.
#[test]
fn a_guard_goes_on_from_what_is_unlinked() {
    explore(2, || {
        against_removal(2, 2, |list| {
            let reader = list.domain.reader();
            let guard = reader.pin();
            let mut link = &list.head;
            // SAFETY: the contract of links, rules 1 to 4.
            while let Some(node) = unsafe { link.load(Acquire, &guard).as_ref() } {
                node.object.read();
                link = &node.next;
            }
        });
    });
}

/// Reads the first node and the one behind it, each protected. A mark ends the walk.
fn walk_hand_over_hand(list: &List) {
    let reader = list.domain.reader();
    let first = list.head.protect(&reader);
    // SAFETY: the link is the root.
    let Some(node) = (unsafe { first.as_ref() }) else { return };
    node.object.read();
    let second = node.next.protect(&reader);
    if second.tag() != MARK {
        // SAFETY: the first node's link has no mark.
        if let Some(node) = unsafe { second.as_ref() } {
            node.object.read();
        }
    }
}

#[test]
fn a_walk_hand_over_hand_ends_at_a_mark() {
    explore(2, || against_removal(2, 2, walk_hand_over_hand));
}

/// The tag stays in the link; the slot holds the address without it.
#[test]
fn what_a_link_with_a_tag_points_to_is_protected() {
    explore(3, || {
        let list = List::new(1);
        let tagged = list.head.fetch_or(2, Relaxed, &Unprotected).with_tag(2);
        let walker = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let reader = list.domain.reader();
                let first = list.head.protect(&reader);
                // SAFETY: the link is the root, whose tags are not marks.
                if let Some(node) = unsafe { first.as_ref() } {
                    node.object.read();
                }
            })
        };
        let mut reclaimer = list.domain.reclaimer();
        list.head.store(Shared::null(), Release);
        // SAFETY: it was unlinked, and no other thread retires it.
        reclaimer.retire(unsafe { tagged.into_retired(&list.domain) }).expect("there is room");
        reclaimer.poll();
        walker.join().unwrap();
    });
}
