use std::fmt;

use super::engine::change::{Computed, Found};
use super::error::Full;

/// What the function that is passed to [`TableReader::compute`](super::TableReader::compute) asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<V, T = ()> {
    /// Insert the value, and replace what is there, if anything.
    Insert(V),
    /// Remove what is there, if anything.
    Remove,
    /// Leave everything as it is, and hand out what is there.
    Keep,
    /// Leave everything as it is, and return this value to the caller.
    Abort(T),
}

/// What [`TableReader::compute`](super::TableReader::compute) has done. `E` is an entry that is in the table: a
/// [`Ref`](super::Ref), or key and value under a guard; `R` is a [`Removed`](super::Removed) one.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it may hold an entry, and says what was done"]
pub enum Compute<E, R, T = ()> {
    /// The key was not there; this is its entry now.
    Inserted(E),
    /// The entry was replaced.
    Updated {
        /// What was there before.
        old: R,
        /// What is there now.
        new: E,
    },
    /// The entry was removed.
    Removed(R),
    /// Nothing was done. Has the entry, if the key is there. Also the result of [`Operation::Remove`] if the key is not there.
    Kept(Option<E>),
    /// Nothing was done, for this reason.
    Aborted(T),
}

impl<E, R, T> Compute<E, R, T> {
    /// From what the engine has done.
    pub(super) fn of<F>(
        computed: Computed<F, T>,
        entry: impl Fn(F) -> E,
        removed: impl Fn(u32) -> R,
    ) -> Self {
        match computed {
            Computed::Inserted(kept) => Self::Inserted(entry(kept)),
            Computed::Updated { old, new } => Self::Updated { old: removed(old), new: entry(new) },
            Computed::Removed(old) => Self::Removed(removed(old)),
            Computed::Kept(kept) => Self::Kept(kept.map(entry)),
            Computed::Aborted(with) => Self::Aborted(with),
        }
    }
}

/// Why a pair was not inserted, by [`TableReader::try_insert`](super::TableReader::try_insert) or
/// [`try_insert_with`](super::TableReader::try_insert_with).
pub enum TryInsertError<E, K, V, U = V> {
    /// The key is there already.
    Occupied {
        /// The entry that is there.
        current: E,
        /// The key that was to be inserted.
        key: K,
        /// The value that was to be inserted. For `try_insert_with`, an option: the value may not have been made.
        value: U,
    },
    /// There is no room.
    Full(Full<K, V>),
}

impl<E, K, V> TryInsertError<E, K, V, Option<V>> {
    /// From what the engine has found.
    pub(super) fn check<F>(found: Result<Found<F, K, V>, (K, V)>, entry: impl Fn(F) -> E) -> Result<E, Self> {
        match found {
            Ok(Found::Inserted(kept)) => Ok(entry(kept)),
            Ok(Found::Present(kept, key, value)) => Err(Self::Occupied { current: entry(kept), key, value }),
            Err(pair) => Err(Self::Full(pair.into())),
        }
    }

    /// Adds the value that the caller had, if it was not used.
    pub(super) fn with(self, unused: Option<V>) -> TryInsertError<E, K, V> {
        match self {
            Self::Occupied { current, key, value } => {
                let value = value.or(unused).expect("it was made, or was not used");
                TryInsertError::Occupied { current, key, value }
            }
            Self::Full(full) => TryInsertError::Full(full),
        }
    }
}

impl<E, K, V, U> fmt::Debug for TryInsertError<E, K, V, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied { .. } => f.debug_struct("Occupied").finish_non_exhaustive(),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl<E, K, V, U> fmt::Display for TryInsertError<E, K, V, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied { .. } => {
                f.write_str("the key is in the table already: see the entry that is there")
            }
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl<E, K, V, U> std::error::Error for TryInsertError<E, K, V, U> {}
