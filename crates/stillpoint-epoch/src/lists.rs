//! Retire lists, and chains of them: what locals hand on, the oldest list first.
//!
//! The first list of a chain knows the last one, so each call takes constant time, and none allocates.

use std::ptr::{self, NonNull};

use stillpoint::rcu::Reclaimer;

/// A retire list. It is a chain of one list until others are appended.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) reclaimer: Reclaimer,
    /// The next list of the chain, from `Box::into_raw`; null in the last one.
    next: *mut List,
    /// In the first list of a chain: the last one; null if there is only one.
    last: *mut List,
    /// In the first list of a chain: how many lists the chain has.
    number: usize,
    /// In the first list of a chain: how many functions the lists behind it have.
    behind: usize,
}

// SAFETY: a list owns the lists behind it, as if these were in boxes, and a reclaimer may be sent.
unsafe impl Send for List {}

impl List {
    pub(crate) fn new(reclaimer: Reclaimer) -> Box<Self> {
        Box::new(Self { reclaimer, next: ptr::null_mut(), last: ptr::null_mut(), number: 1, behind: 0 })
    }

    /// How many lists the chain has.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// How many functions the chain has.
    pub(crate) fn functions(&self) -> usize {
        self.reclaimer.pending() + self.behind
    }

    /// Appends another chain.
    pub(crate) fn append(&mut self, other: Box<Self>) {
        self.number += other.number;
        self.behind += other.functions();
        let last = NonNull::new(self.last);
        let (others_last, other) = (other.last, Box::into_raw(other));
        self.last = if others_last.is_null() { other } else { others_last };
        match last {
            None => self.next = other,
            // SAFETY: the chain owns its last list, to which nothing else refers.
            Some(last) => unsafe { (*last.as_ptr()).next = other },
        }
    }

    /// Separates the first list from the others.
    pub(crate) fn split(mut self: Box<Self>) -> (Box<Self>, Option<Box<Self>>) {
        let (next, last, number, behind) = (self.next, self.last, self.number, self.behind);
        (self.next, self.last, self.number, self.behind) = (ptr::null_mut(), ptr::null_mut(), 1, 0);
        // SAFETY: a pointer to the next list is null or came from `Box::into_raw`, and this chain no longer has it.
        let rest = (!next.is_null()).then(|| unsafe { Box::from_raw(next) }).map(|mut rest| {
            (rest.last, rest.number) = (if last == next { ptr::null_mut() } else { last }, number - 1);
            rest.behind = behind - rest.reclaimer.pending();
            rest
        });
        (self, rest)
    }
}

/// Drops the others one after the other: a chain may be long.
impl Drop for List {
    fn drop(&mut self) {
        let mut next = self.next;
        while !next.is_null() {
            // SAFETY: the pointer came from `Box::into_raw`, and the list before it, which is being dropped, owned it.
            let mut list = unsafe { Box::from_raw(next) };
            next = std::mem::replace(&mut list.next, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_keep_their_order() {
        let domain = stillpoint::rcu::Domain::new();
        let list = |functions| {
            let mut list = List::new(domain.reclaimer());
            (0..functions).for_each(|_| list.reclaimer.defer(|| ()));
            list
        };
        let chain = |functions: std::ops::Range<usize>| {
            functions.map(list).reduce(|mut chain, list| {
                chain.append(list);
                chain
            })
        };
        for lengths in [[1, 1], [1, 3], [3, 1], [2, 2]] {
            let mut whole = chain(0..lengths[0]).expect("it has a list");
            whole.append(chain(lengths[0]..lengths[0] + lengths[1]).expect("it has a list"));
            let (mut at, mut rest) = (0, Some(whole));
            while let Some(chain) = rest {
                let whole = lengths[0] + lengths[1];
                assert_eq!((chain.number(), chain.functions()), (whole - at, (at..whole).sum()));
                let (first, others) = chain.split();
                assert_eq!((first.functions(), first.number()), (at, 1));
                (at, rest) = (at + 1, others);
            }
            assert_eq!(at, lengths[0] + lengths[1]);
        }
    }

    /// The drop does not recur: a test's thread has a stack of 2 MiB.
    #[test]
    fn a_long_chain_is_dropped() {
        let domain = stillpoint::rcu::Domain::new();
        let list = || List::new(domain.reclaimer());
        let mut chain = list();
        let number = if cfg!(miri) { 100 } else { 20_000 };
        (1..number).for_each(|_| chain.append(list()));
        assert_eq!(chain.number(), number);
        chain.reclaimer.defer(|| ());
        drop(chain);
        domain.barrier().expect("no reader is there");
        assert_eq!((domain.stats().retired, domain.stats().pending), (1, 0));
    }
}
