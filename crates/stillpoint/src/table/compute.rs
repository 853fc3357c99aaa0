use super::engine::change::{Computed, Found};
use super::engine::Owned;
use super::full::{or_full, Full};

/// What [`TableReader::compute`](super::TableReader::compute) has done. `E` is an entry in the table: a
/// [`Ref`](super::Ref), or key and value under a guard. `R` is a [`Removed`](super::Removed) entry.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it may hold an entry, and says what was done"]
pub enum Compute<E, R, T = ()> {
    /// The key was not in the table; this is its new entry.
    Inserted(E),
    /// The entry was replaced.
    Updated {
        /// The entry before.
        old: R,
        /// The entry now.
        new: E,
    },
    /// The entry was removed.
    Removed(R),
    /// Nothing was changed. Holds the entry, if the key is in the table. Also the result of [`Operation::Remove`](super::Operation::Remove) if
    /// the key is not in the table.
    Kept(Option<E>),
    /// Nothing was changed: the function returned [`Operation::Abort`](super::Operation::Abort) with this value.
    Aborted(T),
}

impl<E, R, T> Compute<E, R, T> {
    /// From the engine's result.
    pub(super) fn of<F>(
        computed: Computed<F, T>,
        entry: impl Fn(F) -> E,
        removed: impl Fn(Owned) -> R,
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

/// Why [`TableReader::try_insert`](super::TableReader::try_insert) or
/// [`try_insert_with`](super::TableReader::try_insert_with) did not insert the pair.
pub enum TryInsertError<E, K, V, U = V> {
    /// The key is in the table already.
    Occupied {
        /// The present entry.
        current: E,
        /// The key that was to be inserted.
        key: K,
        /// The value that was to be inserted. From `try_insert_with`, an `Option`: `None` if the value was not made.
        value: U,
    },
    /// The table is full.
    Full(Full<K, V>),
}

impl<E, K, V> TryInsertError<E, K, V, Option<V>> {
    /// From the engine's result.
    pub(super) fn check<F>(found: Result<Found<F, K, V>, (K, V)>, entry: impl Fn(F) -> E) -> Result<E, Self> {
        match found {
            Ok(Found::Inserted(kept)) => Ok(entry(kept)),
            Ok(Found::Present(kept, key, value)) => Err(Self::Occupied { current: entry(kept), key, value }),
            Err(pair) => Err(Self::Full(pair.into())),
        }
    }

    /// Adds the caller's value, if it was not used.
    pub(super) fn with(self, unused: Option<V>) -> TryInsertError<E, K, V> {
        match self {
            Self::Occupied { current, key, value } => {
                let value = value.or(unused).expect("a value that was not handed back is still unused");
                TryInsertError::Occupied { current, key, value }
            }
            Self::Full(full) => TryInsertError::Full(full),
        }
    }
}

or_full!(
    TryInsertError<E, K, V, U>,
    Occupied: "the key is in the table already: the error holds the present entry"
);
