//! The orderings that the argument in `docs/design/table.md` relies on, as [`crate::rcu`] has its own in `orders`.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "table.md";

    /// A slot gets another index: publishes the entry, or what a mover did before it cleared the word.
    set_entry: Release, [entry, candidate, confirm], "3", [EntryStoreRelaxed];
    /// A load in a region, or under the stripe's lock: the entry is read.
    entry: Acquire, [set_entry], "4", [EntryLoadRelaxed];
    /// The first load of a protected one. Whoever sees the word that a mover cleared sees the link that it set before;
    /// whoever sees an index sees the chunk that its address is in.
    candidate: Acquire, [set_entry], "12", [FirstLoadRelaxed];
    /// The load that confirms: the entry is read, or the link that a mover set before it cleared the word.
    confirm: Acquire, [set_entry], "3", [ReloadRelaxed];
    /// A load of a bucket's tags: whoever sees those that a mover cleared sees the link that it set before.
    tags: Acquire, ["the release in `Bucket::set_tag`"], "11", [TagLoadRelaxed];
}
