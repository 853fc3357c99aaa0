//! Deliberately broken variants of shared timers, like those of the reclamation in [`crate::busted`]: controls for the
//! models. In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=timer:NAME` chooses one.

stillpoint_sys::variants! {
    for models, "timer";
    ClaimRelaxed = "claim-relaxed": "A timer is claimed for another use by a relaxed operation.",
    ArmRelaxed = "arm-relaxed": "A timer is armed by a relaxed store.",
    FindRelaxed = "find-relaxed": "A canceller loads the state with relaxed ordering, not acquire.",
    CancelRelaxed = "cancel-relaxed": "A timer is cancelled by a relaxed operation.",
    CancelByStore = "cancel-by-store": "A timer is cancelled by a load and a store.",
    TakeLate = "take-late": "A cancelled timer may be armed again before its value has been taken.",
    TakenRelaxed = "taken-relaxed": "The store after taking the value of a cancelled timer is relaxed.",
    RevokedRelaxed = "revoked-relaxed": "The store after the owner takes a revoked value is relaxed.",
    FinishRelaxed = "finish-relaxed": "The owner ends a callback by a relaxed operation.",
    PublishRelaxed = "publish-relaxed": "The source publishes messages by a relaxed store.",
    RoomRelaxed = "room-relaxed": "The owner gives back room in the ring by a relaxed store.",
    TakeTwice = "take-twice": "The owner takes in an arming that it has taken in already.",
    BeginRelaxed = "begin-relaxed": "The owner begins a callback by a relaxed operation.",
    LockRelaxed = "lock-relaxed": "A reset locks the timer by a relaxed operation.",
    ResetRelaxed = "reset-relaxed": "A timer is reset by a relaxed operation.",
    ResetByStore = "reset-by-store": "A timer is reset by a store, even if it was cancelled meanwhile.",
    SettleByStore = "settle-by-store": "A thread that ends an arming clears the lock of a reset.",
    EndRelaxed = "end-relaxed": "The count of ended callbacks is changed and read by relaxed operations.",
    EndUntold = "end-untold": "The end of a callback is not announced.",
    SleepRelaxed = "sleep-relaxed": "The owner announces by a relaxed store that it sleeps.",
    RouseRelaxed = "rouse-relaxed": "A thread that wakes the owner takes its alarm by a relaxed operation.",
    RousedRelaxed = "roused-relaxed": "A thread that has taken the alarm announces it by a relaxed store.",
    SleepUnfenced = "sleep-unfenced": "The owner looks for messages without a fence after it has announced that it sleeps.",
    PostUnfenced = "post-unfenced": "A source checks whether the owner sleeps without a fence after its message.",
    HintRelaxed = "hint-relaxed": "A hint is pushed by a relaxed operation.",
    HintByStore = "hint-by-store": "The owner takes a hint by a relaxed store to its mark.",
    HintMarkLate = "hint-mark-late": "The owner clears the mark of a hint after it has read the timer's state.",
}
