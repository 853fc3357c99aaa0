//! Deliberately broken variants of the multicast: controls for the models, as the crate `stillpoint` has them for
//! reclamation. In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=multicast:NAME` chooses
//! one.

stillpoint_sys::variants! {
    for models, "multicast";
    PostRelaxed = "post-relaxed": "A message is posted by a relaxed operation.",
    TakeRelaxed = "take-relaxed": "Messages are taken out of the mailbox by a relaxed operation.",
    ClosedRelaxed = "closed-relaxed": "A closed mailbox is seen by a relaxed load.",
    CloseRelaxed = "close-relaxed": "A mailbox is closed by a relaxed operation.",
    JoinNoFence = "join-no-fence": "A thread joins without a full fence.",
    CountLate = "count-late": "A child is counted after its message was posted.",
    AckRelaxed = "ack-relaxed": "Acknowledgements are relaxed.",
    AckEarly = "ack-early": "A receiver acknowledges before it has forwarded and run the function.",
    DoneRelaxed = "done-relaxed": "The initiator reads its count by a relaxed load.",
    HelpUnclaimed = "help-unclaimed": "A range is claimed by a load and a store, not by a read-modify-write.",
    HelpRelaxed = "help-relaxed": "The claim that takes a range over is relaxed.",
    HelpUnderHelped = "help-under-helped": "A helper's messages are counted in the helped receiver, not in the root.",
    NotAdopted = "not-adopted": "The sender does not adopt the range of a receiver that has left.",
    LeaveUndrained = "leave-undrained": "A thread leaves without processing its messages.",
    SleepUnmarked = "sleep-unmarked": "The initiator sleeps without marking that it does.",
    RouseUndrained = "rouse-undrained": "The initiator wakes up without processing its own messages.",
    FinishRelaxed = "finish-relaxed": "An operation is given back by a relaxed store.",
    ResumeRelaxed = "resume-relaxed": "An operation that lingers is resumed by a relaxed operation.",
    ResumeUncounted = "resume-uncounted": "A thread that resumes an operation does not count itself.",
    GiveBackRelaxed = "give-back-relaxed": "A place is given back by relaxed operations.",
    PassedRelaxed = "passed-relaxed": "A free place is passed over by a relaxed load.",
    EmptyRelaxed = "empty-relaxed": "A chunk without taken places is passed over by a relaxed load.",
    LingerRelaxed = "linger-relaxed": "An operation that has lingered is taken by relaxed operations.",
    SettleUnfenced = "settle-unfenced": "Who leaves an operation to its receivers, or acknowledges last, does not fence.",
}
