//! Deliberately broken variants of timers across threads, as [`crate::busted`] has them of the reclamation: controls for
//! the models. In builds with `--cfg stillpoint_busted`, one is chosen by the environment variable
//! `STILLPOINT_BUSTED_TIMER`.

stillpoint_sys::variants! {
    for models, "STILLPOINT_BUSTED_TIMER";
    ClaimRelaxed = "claim-relaxed": "A timer is claimed for another use by a relaxed operation.",
    ArmRelaxed = "arm-relaxed": "A timer is armed by a relaxed store.",
    FindRelaxed = "find-relaxed": "Who cancels a timer loads its state relaxed, not acquire.",
    CancelRelaxed = "cancel-relaxed": "A timer is cancelled by a relaxed operation.",
    CancelByStore = "cancel-by-store": "A timer is cancelled by a load and a store.",
    TakeLate = "take-late": "A cancelled timer may be used again before its value was taken.",
    TakenRelaxed = "taken-relaxed": "The store after the value of a cancelled timer was taken is relaxed.",
    RevokedRelaxed = "revoked-relaxed": "The store after the owner has taken a revoked value is relaxed.",
    FinishRelaxed = "finish-relaxed": "The owner ends a callback by a relaxed operation.",
    PublishRelaxed = "publish-relaxed": "The source publishes what it wrote into the ring by a relaxed store.",
    RoomRelaxed = "room-relaxed": "The owner gives room in the ring back by a relaxed store.",
    TakeTwice = "take-twice": "The owner takes an arming in that it has taken in already.",
    BeginRelaxed = "begin-relaxed": "The owner begins a callback by a relaxed operation.",
    LockRelaxed = "lock-relaxed": "Who resets a timer locks it by a relaxed operation.",
    ResetRelaxed = "reset-relaxed": "A timer is reset by a relaxed operation.",
    ResetByStore = "reset-by-store": "A timer is reset by a store, whoever has cancelled it meanwhile.",
    SettleByStore = "settle-by-store": "Whoever ends an arming takes the lock of a reset away.",
    EndRelaxed = "end-relaxed": "The count of callbacks that were waited for is changed and read by relaxed operations.",
    EndUntold = "end-untold": "Nobody is told that a callback has ended.",
    SleepRelaxed = "sleep-relaxed": "The owner says that it sleeps by a relaxed store.",
    RouseRelaxed = "rouse-relaxed": "Whoever rouses the owner takes its alarm by a relaxed operation.",
    RousedRelaxed = "roused-relaxed": "Whoever has roused the owner says so by a relaxed store.",
    SleepUnfenced = "sleep-unfenced": "The owner looks for messages without a fence after it has said that it sleeps.",
    PostUnfenced = "post-unfenced": "A source looks whether the owner sleeps without a fence after its message.",
    HintRelaxed = "hint-relaxed": "A hint is pushed by a relaxed operation.",
    HintByStore = "hint-by-store": "The owner takes a hint by a relaxed store to its mark.",
    HintMarkLate = "hint-mark-late": "The owner clears the mark of a hint after it has looked at the timer.",
}
