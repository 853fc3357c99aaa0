//! Why calls that decide, or wait, did not do so. Nothing is lost: each error hands back what the call was given.
//!
//! [`Full`] and [`OutOfMemory`](super::OutOfMemory) are one level up.

use super::engine::change::NotMade;
use super::full::{or_full, Full};
pub use super::removed::StillHeld;

/// Why [`Table::update_owned`](super::Table::update_owned) did not replace an entry.
#[derive(Clone, PartialEq, Eq)]
pub enum UpdateError<K, V> {
    /// The key is not in the table, and is handed back.
    Absent(K),
    /// The table is full.
    Full(Full<K, V>),
}

or_full!(
    UpdateError<K, V>,
    Absent: "the key is not in the table: insert it, or use `update_or_insert`"
);

/// Why [`Table::get_or_init`](super::Table::get_or_init) returns no entry.
#[derive(Clone, PartialEq, Eq)]
pub enum InitError<K, V> {
    /// Another call makes the value of this key, and this one must not wait for it, since it could wait for ever: it comes from the
    /// function of a `get_or_init`, from foreign code that the library runs, or from within a region of the table's domain.
    WouldDeadlock(K),
    /// The table is full.
    Full(Full<K, V>),
}

or_full!(
    InitError<K, V>,
    WouldDeadlock: "another call makes the value of this key, and this thread must not wait for it: call `get_or_init` outside of the \
                    function of another `get_or_init`, of destructors and callbacks, and of regions, or use `get_or_insert_with`"
);

impl<K, V> From<NotMade<K, V>> for InitError<K, V> {
    fn from(why: NotMade<K, V>) -> Self {
        match why {
            NotMade::NoRoom(key, value) => Self::Full(Full(key, value)),
            NotMade::MustNotWait(key) => Self::WouldDeadlock(key),
        }
    }
}
