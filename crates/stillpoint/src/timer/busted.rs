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
    HintRelaxed = "hint-relaxed": "A hint is pushed by a relaxed operation.",
    HintByStore = "hint-by-store": "The owner takes a hint by a relaxed store to its mark.",
    HintMarkLate = "hint-mark-late": "The owner clears the mark of a hint after it has looked at the timer.",
}
