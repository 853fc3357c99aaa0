//! Every ordering that the argument in `docs/design/structures.md` relies on. The loads of protected links are acquire by
//! themselves. The mark of a list and the look at a queue's tail are relaxed: steps 5 and 7 say why they may be.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "structures.md";

    /// A node is pushed: who pops it sees its content. Later exchanges of the head continue the release sequence.
    stack_push: Release, ["the acquire in `ProtectedLink::load`"], "1", [StackPushRelaxed];

    /// A node is linked behind the last one: who follows the link sees its content.
    queue_link: Release, ["the acquire in `ProtectedLink::load`", queue_next], "3", [QueueLinkRelaxed];
    /// The link of the last node, which the tail moves along.
    queue_next: Acquire, [queue_link], "3", [QueueLinkRelaxed];
    /// The tail moves: who finds the node there sees its content.
    queue_tail: Release, ["the acquire in `ProtectedLink::load`"], "3", [QueueTailRelaxed];
    /// The head moves: who finds the node there sees its content, and a tail that is no older.
    queue_head: Release, ["the acquire in `ProtectedLink::load`"], "4", [QueueHeadRelaxed];

    /// A node is inserted: who follows the link sees its content.
    list_insert: Release, ["the acquire in `ProtectedLink::load`", list_follow], "6", [ListInsertRelaxed];
    /// A node is unlinked: who follows the link sees the content of the next one, and comes after the unlink.
    list_unlink: Release, ["the acquire in `ProtectedLink::load`", list_follow], "6", [ListUnlinkRelaxed];
    /// A walk in a region follows the link.
    list_follow: Acquire, [list_insert, list_unlink], "8", [ListFollowRelaxed];
}
