//! The orderings that the argument in `docs/design/table.md` relies on. The module `orders` of [`crate::rcu`] has the
//! same form.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "table.md";

    /// Stores another index in a slot. Publishes the entry, or what a mover did before it cleared the word.
    set_entry: Release, [entry, candidate, confirm], "3", [EntryStoreRelaxed];
    /// Loads an index in a region, or under the stripe's lock. The entry is read afterwards.
    entry: Acquire, [set_entry], "4", [EntryLoadRelaxed];
    /// The first load of a protected lookup. A reader that sees the word cleared by a mover also sees the link that the
    /// mover set before. A reader that sees an index also sees the chunk that the entry's address is in.
    candidate: Acquire, [set_entry], "12", [FirstLoadRelaxed];
    /// The load that confirms the first one. The entry is read afterwards, or the link that a mover set before it
    /// cleared the word.
    confirm: Acquire, [set_entry], "3", [ReloadRelaxed];
    /// Loads a bucket's tags. A reader that sees tags cleared by a mover also sees the link that the mover set before.
    tags: Acquire, ["the release in `Bucket::set_tag`"], "11", [TagLoadRelaxed];
}
