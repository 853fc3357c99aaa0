//! The orderings that the argument in `docs/design/pool.md` relies on.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "pool.md";

    /// A remote free. Release: what the freeing thread did with the objects happens before what their next user does.
    /// Acquire: the row's link is not overwritten before the collector has read it.
    free: AcqRel, [collect], "1", [FreeRelaxed];
    /// Takes the remote word of a row. Acquire: see `free`. Release: the row's link was read before the row can be
    /// posted again.
    collect: AcqRel, [free], "1", [CollectRelaxed];
    /// Posts rows to an inbox. Publishes their links.
    post: Release, [take_inbox], "4", [PostRelaxed];
    /// Leaves the rest of an inbox list. Publishes the links, which other threads have stored.
    leave_rest: Release, [take_inbox], "4", [RestRelaxed];
    /// Takes a list of an inbox. Its links are followed.
    take_inbox: Acquire, [post, leave_rest], "4", [InboxRelaxed];
    /// Gives buckets to the store, with their rows.
    give: Release, [take], "8", [GiveRelaxed];
    /// Takes buckets from the store. Their links are followed.
    take: Acquire, [give], "8", [TakeRelaxed];
    /// Frees objects of a small pool. What the freeing thread did with them happens before what their next user does.
    free_common: Release, [take_common], "17", [FreeCommonRelaxed];
    /// Takes objects of a small pool.
    take_common: Acquire, [free_common], "17", [TakeCommonRelaxed];
    /// Leaves a shard, with its cache and its lists.
    leave: Release, [hold], "11", [LeaveRelaxed];
    /// Takes hold of a shard.
    hold: Acquire, [leave], "11", [AdoptRelaxed];
}
