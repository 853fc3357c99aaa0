//! A number that spreads threads over shards and lists. Every write asks for it, so it also says whether the thread is in
//! a function whose own writes are [noticed](crate::own_writes): this costs other writes nothing.

use std::cell::Cell;

use super::bucket::NO_ENTRY;
use super::{Inner, Owned};
use crate::own_writes::{self, Watch};

std::thread_local! {
    /// 0 before the thread's first write, and while one of its functions is watched.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The number of the thread: threads made one after the other get different ones. Any value is correct.
#[inline(always)]
pub(crate) fn hint() -> usize {
    match NUMBER.get() {
        0 => first(),
        number => number,
    }
}

#[cold]
fn first() -> usize {
    let number = stillpoint_sys::os::thread_number() as usize;
    if !own_writes::is_watched() {
        NUMBER.set(number);
    }
    number
}

/// Runs a function of the user, and watches what it writes.
#[inline(always)]
pub(super) fn watched<R>(watch: &Watch, function: impl FnOnce() -> R) -> R {
    struct Restore(usize);

    impl Drop for Restore {
        #[inline(always)]
        fn drop(&mut self) {
            NUMBER.set(self.0);
        }
    }

    let _restore = Restore(NUMBER.replace(0));
    watch.run(function)
}

impl<K, V, S> Inner<K, V, S> {
    /// How a [`Watch`] names the table.
    pub(super) fn place(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// The [`hint`], for a writer that is about to link an entry with this key.
    #[inline(always)]
    pub(super) fn hint_before_link(&self, key: &K) -> usize
    where
        K: Eq,
    {
        match NUMBER.get() {
            0 => self.announce(key),
            number => number,
        }
    }

    #[cold]
    #[inline(never)]
    fn announce(&self, key: &K) -> usize
    where
        K: Eq,
    {
        own_writes::announce(self.place(), key);
        first()
    }

    /// An entry that the caller has just unlinked, and `linked` in its place, unless that is [`NO_ENTRY`].
    #[inline(always)]
    pub(super) fn owned(&self, entry: u32, linked: u32) -> Owned {
        Owned::new(entry, self.hint_after(linked, entry))
    }

    /// The [`hint`], for a writer that has just linked and unlinked these entries; [`NO_ENTRY`] if there is none.
    #[inline(always)]
    pub(super) fn hint_after(&self, linked: u32, unlinked: u32) -> usize {
        match NUMBER.get() {
            0 => self.note(linked, unlinked),
            number => number,
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self, linked: u32, unlinked: u32) -> usize {
        let number = |entry| (entry != NO_ENTRY).then_some(entry as usize);
        own_writes::note(self.place(), number(linked), number(unlinked));
        first()
    }
}
