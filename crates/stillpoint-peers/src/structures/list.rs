//! The ordered list of T. Harris and M. Michael.

use std::mem;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::scheme::{MARK, Region, Scheme, Thread, address};
use super::{Ordered, OrderedThread, value_of};

struct Node {
    key: u64,
    value: u64,
    /// The next node. When the node is removed, this link gets the mark and does not change any more.
    next: AtomicPtr<Node>,
}

fn is_marked(link: *mut Node) -> bool {
    link.addr() & MARK != 0
}

#[derive(Default)]
pub(super) struct List<S> {
    head: AtomicPtr<Node>,
    scheme: S,
}

impl<S: Scheme> Ordered for List<S> {
    fn thread(&self) -> Box<dyn OrderedThread + '_> {
        Box::new(ListThread { list: self, thread: self.scheme.thread() })
    }
}

struct ListThread<'s, S: Scheme> {
    list: &'s List<S>,
    thread: S::Thread<'s>,
}

/// The link to the first node whose key is not less than the requested one, and that node.
struct Place<'l> {
    link: &'l AtomicPtr<Node>,
    current: *mut Node,
    is_found: bool,
}

/// Walks hand over hand to the place of `key`, and unlinks marked nodes on the way.
#[inline(always)]
fn seek<'l>(head: &'l AtomicPtr<Node>, region: &mut impl Region, key: u64) -> Place<'l> {
    'restart: loop {
        let (mut before, mut at, mut behind) = (0, 1, 2);
        let mut link = head;
        let mut current = region.load(at, link);
        loop {
            if is_marked(current) {
                continue 'restart; // the previous node was removed
            }
            // SAFETY: `current` is null, or a node to which an unmarked link led. The region keeps this node and the previous one.
            let Some(node) = (unsafe { current.as_ref() }) else {
                return Place { link, current, is_found: false };
            };
            let next = region.load(behind, &node.next);
            if is_marked(next) {
                // Release: pairs with the acquire in `Region::load`.
                let answer =
                    link.compare_exchange(current, address(next), Ordering::Release, Ordering::Relaxed);
                if answer.is_err() {
                    continue 'restart;
                }
                // SAFETY: the node came from a box, and this thread has just unlinked it.
                unsafe { region.retire(current) };
                current = region.load(at, link);
                continue;
            }
            if node.key >= key {
                return Place { link, current, is_found: node.key == key };
            }
            link = &node.next;
            current = next;
            mem::swap(&mut before, &mut at);
            mem::swap(&mut at, &mut behind);
        }
    }
}

/// The value of `key`, for schemes whose regions keep all removed nodes. The walk passes over removed nodes.
#[inline(always)]
fn walk(head: &AtomicPtr<Node>, region: &mut impl Region, key: u64) -> Option<u64> {
    let mut link = head;
    loop {
        // SAFETY: the address is null, or that of a node that was linked when the region began or later.
        let node = unsafe { address(region.load(0, link)).as_ref() }?;
        if node.key >= key {
            // Relaxed: only the mark is looked at; the link is not followed.
            let is_there = node.key == key && !is_marked(node.next.load(Ordering::Relaxed));
            return is_there.then_some(node.value);
        }
        link = &node.next;
    }
}

#[inline(always)]
fn find<S: Scheme>(list: &List<S>, region: &mut impl Region, key: u64) -> Option<u64> {
    if S::KEEPS_ALL {
        return walk(&list.head, region, key);
    }
    let place = seek(&list.head, region, key);
    // SAFETY: the region keeps what was found.
    place.is_found.then(|| unsafe { (*place.current).value })
}

impl<S: Scheme> OrderedThread for ListThread<'_, S> {
    #[inline(always)]
    fn get(&mut self, key: u64) -> Option<u64> {
        find(self.list, &mut self.thread.enter(), key)
    }

    #[inline(always)]
    fn insert(&mut self, key: u64) -> bool {
        let mut region = self.thread.enter();
        let mut new = Box::new(Node { key, value: value_of(key), next: AtomicPtr::default() });
        loop {
            let place = seek(&self.list.head, &mut region, key);
            if place.is_found {
                return false;
            }
            *new.next.get_mut() = place.current;
            let node = Box::into_raw(new);
            // Release: pairs with the acquire in `Region::load`.
            let answer =
                place.link.compare_exchange(place.current, node, Ordering::Release, Ordering::Relaxed);
            if answer.is_ok() {
                return true;
            }
            // SAFETY: `node` is the box from above, which was not linked.
            new = unsafe { Box::from_raw(node) };
        }
    }

    #[inline(always)]
    fn remove(&mut self, key: u64) -> bool {
        let mut region = self.thread.enter();
        loop {
            let place = seek(&self.list.head, &mut region, key);
            if !place.is_found {
                return false;
            }
            // SAFETY: the region keeps what was found.
            let node = unsafe { &*place.current };
            // Acquire: pairs with the releases that set links. The exchange below publishes the next node, so it must be visible here.
            let next = node.next.load(Ordering::Acquire);
            let marked = next.map_addr(|next| next | MARK);
            // Relaxed: the mark publishes nothing.
            if is_marked(next)
                || node.next.compare_exchange(next, marked, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            // Release: pairs with the acquire in `Region::load`.
            let answer =
                place.link.compare_exchange(place.current, next, Ordering::Release, Ordering::Relaxed);
            match answer {
                // SAFETY: the node came from a box, and this thread has just unlinked it.
                Ok(_) => unsafe { region.retire(place.current) },
                Err(_) => drop(seek(&self.list.head, &mut region, key)),
            }
            return true;
        }
    }

    fn inside(&mut self, key: u64, meanwhile: &mut dyn FnMut()) -> bool {
        let mut region = self.thread.enter();
        let found = find(self.list, &mut region, key);
        meanwhile();
        found.is_some()
    }
}

impl<S> Drop for List<S> {
    fn drop(&mut self) {
        let mut next = *self.head.get_mut();
        while !next.is_null() {
            // SAFETY: every linked node came from a box, and no other thread uses the list any more.
            next = address(*unsafe { Box::from_raw(next) }.next.get_mut());
        }
    }
}
