use std::fmt;

/// The table is full. The key and the value are handed back.
///
/// A table with a [limit](super::TableBuilder::max_len) is full when its entries, and removed ones that are not freed
/// yet, reach the limit. These wait for a reader that holds them up, or for another writer that was preempted while it
/// freed some, or before it has found that its key is there: then another attempt succeeds when that writer runs again. A full table
/// still replaces entries, until replaced entries that wait also take its 64 spare slots. A table without a limit is full when there is
/// no memory. An insertion in a destructor, or under the lock of another table (in `Eq` or `Hash`), frees nothing, so it may find a table
/// full of what nobody holds up. So may one in a table whose polls have taken over much that others had left to the domain: each attempt frees
/// a part of that.
///
/// ```
/// use stillpoint::{rcu::Domain, table::{Full, Table}};
///
/// let table = Table::builder_in(&Domain::new()).max_len(1).build()?;
/// table.insert("a", 1).unwrap();
/// let Err(full) = table.insert("b", 2) else { panic!("there is room for one entry only") };
/// assert_eq!(full, Full("b", 2));
/// assert_eq!(full.into_inner(), ("b", 2));
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Full<K, V>(
    /// The key.
    pub K,
    /// The value.
    pub V,
);

impl<K, V> Full<K, V> {
    /// The key and the value.
    pub fn into_inner(self) -> (K, V) {
        (self.0, self.1)
    }
}

impl<K, V> From<(K, V)> for Full<K, V> {
    fn from((key, value): (K, V)) -> Self {
        Self(key, value)
    }
}

impl<K, V> fmt::Debug for Full<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").field(&format_args!("{self}")).finish()
    }
}

impl<K, V> fmt::Display for Full<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the table has no room for another entry: remove some, give it a higher limit, or find the reader that \
             holds removed entries up; if writers outnumber CPUs, one of them may hold some up for a moment",
        )
    }
}

impl<K, V> std::error::Error for Full<K, V> {}

/// Makes an error of an enum with two variants: `Full`, and another one, of which a text tells.
macro_rules! or_full {
    ($name:ident<$($parameter:ident),+>, $other:ident: $text:literal) => {
        impl<$($parameter),+> std::fmt::Debug for $name<$($parameter),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::$other { .. } => f.debug_struct(stringify!($other)).finish_non_exhaustive(),
                    Self::Full(full) => full.fmt(f),
                }
            }
        }

        impl<$($parameter),+> std::fmt::Display for $name<$($parameter),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::$other { .. } => f.write_str($text),
                    Self::Full(full) => full.fmt(f),
                }
            }
        }

        impl<$($parameter),+> std::error::Error for $name<$($parameter),+> {}
    };
}
pub(super) use or_full;

/// There is no memory for a table of this size, or the size is above the limit: a table has at most 2³² − 66 entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    pub(super) entries: usize,
    /// Bytes of each entry.
    pub(super) each: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entries {
            // Even an empty table has some slots.
            0 => write!(
                f,
                "there is no memory for the first entries of a table, of {} bytes each: put large values into boxes",
                self.each
            ),
            entries => write!(
                f,
                "there is no memory, or no room below the table's limit, for {entries} entries of {} bytes each: ask \
                 for fewer",
                self.each
            ),
        }
    }
}

impl std::error::Error for OutOfMemory {}
