//! Every ordering that the argument in `docs/design/structures.md` relies on. The loads of protected links are always
//! acquire. The mark of a list and the look at a queue's tail are relaxed: steps 5 and 7 say why they may be.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "structures.md";

    /// Pushes a node: a thread that pops it sees its content. Later exchanges of the head continue the release sequence.
    stack_push: Release, ["the acquire in `ProtectedLink::load`"], "1", [StackPushRelaxed];

    /// Links a node behind the last one: a thread that follows the link sees its content.
    queue_link: Release, ["the acquire in `ProtectedLink::load`", queue_next], "3", [QueueLinkRelaxed];
    /// Loads the link of the last node, along which the tail moves.
    queue_next: Acquire, [queue_link], "3", [QueueLinkRelaxed];
    /// Moves the tail: a thread that finds the node there sees its content.
    queue_tail: Release, ["the acquire in `ProtectedLink::load`"], "3", [QueueTailRelaxed];
    /// Moves the head: a thread that finds the node there sees its content, and loads a tail that is at the node or behind it.
    queue_head: Release, ["the acquire in `ProtectedLink::load`"], "4", [QueueHeadRelaxed];

    /// Inserts a node: a thread that follows the link sees its content.
    list_insert: Release, ["the acquire in `ProtectedLink::load`", list_follow], "6", [ListInsertRelaxed];
    /// Unlinks a node: a thread that follows the link sees the content of the next node, and comes after the unlink.
    list_unlink: Release, ["the acquire in `ProtectedLink::load`", list_follow], "6", [ListUnlinkRelaxed];
    /// Loads a link, which a walk in a region then follows.
    list_follow: Acquire, [list_insert, list_unlink], "8", [ListFollowRelaxed];
}
