//! Deliberately broken variants of the structures: controls for the models. In builds with `--cfg stillpoint_busted`,
//! `STILLPOINT_BUSTED=structures:NAME` chooses one.

stillpoint_sys::variants! {
    for models, "structures";
    StackPushRelaxed = "stack-push-relaxed": "A node is pushed by a relaxed exchange.",
    StackUnprotected = "stack-unprotected": "The first node of a stack is popped without a slot.",
    QueueLinkRelaxed = "queue-link-relaxed": "A node is linked behind the last one by a relaxed exchange.",
    QueueTailRelaxed = "queue-tail-relaxed": "A queue's tail moves by a relaxed exchange.",
    QueueHeadRelaxed = "queue-head-relaxed": "A queue's head moves by a relaxed exchange.",
    QueueNoLook = "queue-no-look": "A node behind the head is followed without another look at the head.",
    ListInsertRelaxed = "list-insert-relaxed": "A node is inserted into a list by a relaxed exchange.",
    ListUnlinkRelaxed = "list-unlink-relaxed": "A node of a list is unlinked by a relaxed exchange.",
    ListFollowRelaxed = "list-follow-relaxed": "A walk in a region follows relaxed loads.",
    ListMarkIgnored = "list-mark-ignored": "A walk hand over hand goes on from a marked node.",
    ListUnlinkFirst = "list-unlink-first": "A node of a list is unlinked before it is marked.",
}
