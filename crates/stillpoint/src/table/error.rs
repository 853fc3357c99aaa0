use std::fmt;

/// The table has no room for another entry: it hands key and value back.
///
/// A table with a [limit](super::TableBuilder::max_len) is full when its entries, and removed ones that readers
/// still hold up, take all of its room; replacements are refused when its 64 spare slots are taken by replaced entries that
/// wait, too. A table without a maximum is full when the system has no memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Full<K, V>(
    /// The key.
    pub K,
    /// The value.
    pub V,
);

impl<K, V> fmt::Debug for Full<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for Full<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the table has no room for another entry: remove some, give it a larger maximum, or find the reader that \
             holds removed entries up",
        )
    }
}

impl<K, V> std::error::Error for Full<K, V> {}

/// There is no memory for a table of this size, or it is beyond the four thousand million entries that a table may
/// have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    pub(super) entries: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for a table of {} entries: ask for fewer", self.entries)
    }
}

impl std::error::Error for OutOfMemory {}
