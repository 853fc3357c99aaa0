//! The orderings that the argument in `docs/design/pool.md` relies on.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "pool.md";

    /// A remote free. Release: what its thread did with the objects comes before what the next one does who gets them.
    /// Acquire: the row's link is not overwritten before it was read.
    free: AcqRel, [collect], "1", [FreeRelaxed];
    /// The remote word is taken.
    collect: AcqRel, [free], "1", [CollectRelaxed];
    /// Rows are posted to an inbox: their links are seen.
    post: Release, [take_inbox], "4", [PostRelaxed];
    /// The rest of an inbox is left: links that others have stored are seen.
    leave_rest: Release, [take_inbox], "4", [RestRelaxed];
    /// A list of an inbox is taken.
    take_inbox: Acquire, [post, leave_rest], "4", [InboxRelaxed];
    /// Buckets go to the store, with their rows.
    give: Release, [take], "8", [GiveRelaxed];
    /// Buckets come from the store: their links are followed.
    take: Acquire, [give], "8", [TakeRelaxed];
    /// A shard is left, with its cache and its lists.
    leave: Release, [hold], "11", [LeaveRelaxed];
    /// A shard is held.
    hold: Acquire, [leave], "11", [AdoptRelaxed];
}
