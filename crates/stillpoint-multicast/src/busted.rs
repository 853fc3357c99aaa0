//! Deliberately broken variants of the multicast, as in [`crate::busted`] for the reclamation: controls for the
//! models. In builds with `--cfg stillpoint_busted`, one is chosen by the environment variable
//! `STILLPOINT_BUSTED_MULTICAST`.

stillpoint_sys::variants! {
    for models, "STILLPOINT_BUSTED_MULTICAST";
    PostRelaxed = "post-relaxed": "A message is posted by a relaxed operation.",
    TakeRelaxed = "take-relaxed": "Messages are taken out of the mailbox by a relaxed operation.",
    ClosedRelaxed = "closed-relaxed": "A closed mailbox is seen by a relaxed load.",
    CloseRelaxed = "close-relaxed": "A mailbox is closed by a relaxed operation.",
    JoinNoFence = "join-no-fence": "A thread joins without a full fence.",
    CountLate = "count-late": "A child is counted after its message was posted.",
    AckRelaxed = "ack-relaxed": "Acknowledgements are relaxed.",
    AckEarly = "ack-early": "A receiver acknowledges before it has forwarded and run the function.",
    DoneRelaxed = "done-relaxed": "The initiator looks at its count by a relaxed load.",
    HelpUnclaimed = "help-unclaimed": "A range is claimed by a load and a store, not by a read-modify-write.",
    HelpRelaxed = "help-relaxed": "The claim that takes a range over is relaxed.",
    HelpUnderHelped = "help-under-helped": "What a helper sends hangs under the helped receiver.",
    NotAdopted = "not-adopted": "What was delegated to a receiver that has left is not adopted.",
    LeaveUndrained = "leave-undrained": "A thread leaves without a look at what was delegated to it.",
    SleepUnmarked = "sleep-unmarked": "The initiator sleeps without saying so.",
    RouseUndrained = "rouse-undrained": "The initiator wakes up without a look at its own mailbox.",
    FinishRelaxed = "finish-relaxed": "An operation is given back by a relaxed store.",
    ResumeRelaxed = "resume-relaxed": "An operation that lingers is resumed by a relaxed operation.",
    ResumeUncounted = "resume-uncounted": "Who resumes an operation does not count itself.",
    GiveBackRelaxed = "give-back-relaxed": "A place is given back by relaxed operations.",
    PassedRelaxed = "passed-relaxed": "A place that nobody has is passed over by a relaxed load.",
    EmptyRelaxed = "empty-relaxed": "A chunk in which nobody has a place is passed over by a relaxed load.",
    LingerRelaxed = "linger-relaxed": "An operation that has lingered is taken by relaxed operations.",
}
