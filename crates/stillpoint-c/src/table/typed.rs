//! Tables of each kind of keys, behind one interface.

use std::ffi::{c_int, c_void};
use std::hash::BuildHasher;

use stillpoint::rcu::{Reader, Region};
use stillpoint::table::raw::{self, Address};
use stillpoint::table::{Replaced, Table, TryInsertError};

use super::keys::{Key, Place, Word};
use super::{get_slowly, still_table};
use crate::reader::{self, Qsbr};

/// What there is too little of for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Memory for the key, the entry or a bucket.
    Memory,
    /// Room below `max_len`.
    Room,
}

/// A table of some kind of keys.
///
/// # Safety
/// A key that is passed to a method points to as many bytes as a key of the table has.
pub(super) trait Any: Send + Sync {
    unsafe fn get(&self, region: &reader::Region<'_>, key: *const u8) -> Option<Word>;
    fn quick(&self) -> Quick;
    unsafe fn get_many(&self, region: &reader::Region<'_>, keys: *const u8, values: &mut [Place]) -> u64;
    /// Protects the object that the value of a key points to. The reader is of the table's domain.
    unsafe fn protect(&self, reader: &Reader, key: *const u8) -> Option<Address>;
    /// As `protect`, for this many keys. Calls `found` with the number of each key, and what was found.
    unsafe fn protect_many(
        &self,
        reader: &Reader,
        keys: *const u8,
        count: usize,
        found: &mut dyn FnMut(usize, Option<Address>),
    );
    unsafe fn insert(&self, key: *const u8, value: Word) -> Result<Option<Word>, Lack>;
    /// Adds a key. If the key has a value already, returns that value instead.
    unsafe fn add(
        &self,
        region: &reader::Region<'_>,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, Lack>;
    unsafe fn remove(&self, key: *const u8) -> Option<Word>;
    /// Removes a key if it has this value. Returns whether it had.
    unsafe fn remove_if(&self, region: &reader::Region<'_>, key: *const u8, value: Word) -> bool;
    fn each(
        &self,
        region: &reader::Region<'_>,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int;
    fn len(&self) -> usize;
    fn poll(&self) -> usize;
    fn pending(&self) -> usize;
}

pub(super) struct Typed<K: Key, S> {
    pub(super) table: Table<K, Word, S>,
    pub(super) bytes: usize,
}

impl<K: Key, S: BuildHasher> Typed<K, S> {
    unsafe fn get_within<R: Region>(&self, region: &R, key: *const u8) -> Option<Word> {
        let view = self.table.within(region);
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { K::with(key, self.bytes, |key| view.get(key).copied()) }
    }

    unsafe fn get_many_within<R: Region>(&self, region: &R, keys: *const u8, values: &mut [Place]) -> u64 {
        // SAFETY: at `keys` there is a key of `self.bytes` bytes for each value, by the caller's promise.
        unsafe { K::get_many(&self.table, region, keys, self.bytes, values) }
    }

    unsafe fn add_within<R: Region>(
        &self,
        region: &R,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, Lack> {
        let view = self.table.within(region);
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe {
            K::with(key, self.bytes, |key| {
                // Without memory for the key, this can still tell that there is an entry.
                let Some(own) = K::own(key) else {
                    return view.get(key).copied().map(Some).ok_or(Lack::Memory);
                };
                match view.try_insert(own, value).map(drop) {
                    Ok(()) => Ok(None),
                    Err(TryInsertError::Occupied { current, .. }) => Ok(Some(*current)),
                    Err(_) => Err(self.lack()),
                }
            })
        }
    }

    unsafe fn remove_if_within<R: Region>(&self, region: &R, key: *const u8, value: Word) -> bool {
        let view = self.table.within(region);
        let is_it = |_: &K, there: &Word| there.0 == value.0;
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { K::with(key, self.bytes, |key| matches!(view.remove_if(key, is_it), Ok(Some(_)))) }
    }

    fn each_within<R: Region>(
        &self,
        region: &R,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int {
        let view = self.table.within(region);
        let answers = view.iter().map(|(key, value)| function(key.start(), *value));
        answers.into_iter().find(|answer| *answer != 0).unwrap_or(0)
    }

    fn old(&self, answer: Replaced<'_, K, Word, S>) -> Result<Option<Word>, Lack> {
        // The table retires the entry that is dropped here.
        answer.map(|old| old.map(|old| *old.value())).map_err(|_| self.lack())
    }

    /// What the table lacked when it refused an entry.
    fn lack(&self) -> Lack {
        if raw::is_at_limit(&self.table) {
            Lack::Room
        } else {
            Lack::Memory
        }
    }
}

/// `still_table_get` for one kind of keys, with its arguments, the [`Typed`] table, and the reader. It tries to settle the lookup by a
/// [glance](raw::glance), and leaves all else to [`get_slowly`]. It ends in that call and calls nothing that may panic, but for a defect of the
/// library, which then ends the process: so it needs no frame, and a loop of lookups has more of its cache misses in flight.
pub(super) type Quick = unsafe extern "C" fn(
    *const still_table,
    *const c_void,
    *const c_void,
    *mut *mut c_void,
    *const c_void,
    &Qsbr,
) -> c_int;

unsafe extern "C" fn quick<K: Key, S: BuildHasher>(
    handle: *const still_table,
    reader: *const c_void,
    key: *const c_void,
    value: *mut *mut c_void,
    table: *const c_void,
    qsbr: &Qsbr,
) -> c_int {
    // SAFETY: the caller passes a table with this type of keys and hasher.
    let Typed { table, bytes } = unsafe { &*table.cast::<Typed<K, S>>() };
    if let Some(online) = qsbr.online() {
        // SAFETY: the caller passes a key of the table's size.
        let found = unsafe { K::with(key.cast(), *bytes, |key| raw::glance(table, online, key)) };
        match found {
            Some(Some(Word(word))) => {
                if !value.is_null() {
                    // SAFETY: the caller passes a place.
                    unsafe { value.write(*word) };
                }
                return 1;
            }
            Some(None) => return 0,
            None => {}
        }
    }
    // SAFETY: the caller passes handles, a key of the table's size, and a place, or null.
    unsafe { get_slowly(handle, reader, key, value) }
}

/// Calls a method with either kind of region.
macro_rules! within {
    ($region:expr, $table:ident.$method:ident($($argument:expr),*)) => {
        match $region {
            reader::Region::Guard(pinned) => $table.$method(pinned.guard(), $($argument),*),
            reader::Region::Qsbr(qsbr) => $table.$method(*qsbr, $($argument),*),
        }
    };
}

impl<K: Key, S: BuildHasher + Send + Sync> Any for Typed<K, S> {
    unsafe fn get(&self, region: &reader::Region<'_>, key: *const u8) -> Option<Word> {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { within!(region, self.get_within(key)) }
    }

    fn quick(&self) -> Quick {
        quick::<K, S>
    }

    unsafe fn get_many(&self, region: &reader::Region<'_>, keys: *const u8, values: &mut [Place]) -> u64 {
        // SAFETY: at `keys` there is a key of `self.bytes` bytes for each value, by the caller's promise.
        unsafe { within!(region, self.get_many_within(keys, values)) }
    }

    unsafe fn protect(&self, reader: &Reader, key: *const u8) -> Option<Address> {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { K::with(key, self.bytes, |key| raw::protect(&self.table, reader, key, Word::object)) }
    }

    unsafe fn protect_many(
        &self,
        reader: &Reader,
        keys: *const u8,
        count: usize,
        found: &mut dyn FnMut(usize, Option<Address>),
    ) {
        // SAFETY: at `keys` there are `count` keys of `self.bytes` bytes, by the caller's promise.
        let key = |at: usize| unsafe { K::at(keys.add(at * self.bytes), self.bytes) };
        raw::protect_many(&self.table, reader, count, key, Word::object, found);
    }

    unsafe fn insert(&self, key: *const u8, value: Word) -> Result<Option<Word>, Lack> {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe {
            K::with(key, self.bytes, |key| {
                self.old(self.table.insert(K::own(key).ok_or(Lack::Memory)?, value))
            })
        }
    }

    unsafe fn add(
        &self,
        region: &reader::Region<'_>,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, Lack> {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { within!(region, self.add_within(key, value)) }
    }

    unsafe fn remove(&self, key: *const u8) -> Option<Word> {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { K::with(key, self.bytes, |key| self.table.remove(key).map(|old| *old.value())) }
    }

    unsafe fn remove_if(&self, region: &reader::Region<'_>, key: *const u8, value: Word) -> bool {
        // SAFETY: at `key` there is a key of `self.bytes` bytes, by the caller's promise.
        unsafe { within!(region, self.remove_if_within(key, value)) }
    }

    fn each(
        &self,
        region: &reader::Region<'_>,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int {
        within!(region, self.each_within(function))
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn poll(&self) -> usize {
        self.table.poll()
    }

    fn pending(&self) -> usize {
        self.table.pending()
    }
}
