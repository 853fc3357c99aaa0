//! The orderings that the argument in `docs/design/timer.md` relies on, for timers that threads share.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "timer.md";

    /// Claims a timer for another arming. Its old value was taken before a new one is written.
    claim: Acquire, [taken, revoked, finish, "the releases in `Record::abandon` and `Record::reset`"], "S4", [ClaimRelaxed];
    /// Arms a timer. Publishes its value and its schedule.
    arm: Release, [find, cancel, lock, "the acquire in `schedule`"], "S3", [ArmRelaxed];
    /// A canceller's first load. If the timer is armed, the value is visible; if it has fired, what the callback did.
    find: Acquire, [arm, reset, begin, finish_beat, finish], "S3", [FindRelaxed];
    /// A canceller's exchange. Since its first load, beats may have come and gone, and the state may be the same again.
    cancel: Acquire, [arm, reset, finish_beat], "S3", [CancelRelaxed];
    /// Changes the state after a canceller has taken the value.
    taken: Release, [claim], "S4", [TakenRelaxed];
    /// Changes the state after the owner has taken a revoked value.
    revoked: Release, [claim], "S4", [RevokedRelaxed];
    /// Changes the state after a callback. Publishes what the callback did.
    finish: Release, [claim, find], "S4", [FinishRelaxed];
    /// Changes the state after a callback of a periodic timer. Publishes the value, which has been put back.
    finish_beat: Release, [find, cancel, lock], "S3", [FinishBeatRelaxed];
    /// Begins a callback. Publishes on which thread it runs.
    begin: Release, [find], "S14", [BeginRelaxed];
    /// Locks a timer for a reset. Its flags are visible, and the writes of an earlier reset happen before those of this
    /// one.
    lock: Acquire, [arm, reset, finish_beat], "S12", [LockRelaxed];
    /// Ends a reset. Publishes the schedule and, still, the value.
    reset: Release, [find, cancel, lock, "the acquire in `schedule`"], "S12", [ResetRelaxed];
    /// Counts the end of a callback that a canceller waits for.
    end: Release, [await_end], "S14", [EndRelaxed];
    /// Reads the count before a canceller waits. If an end is counted here, the state after it is visible.
    await_end: Acquire, [end], "S14", [EndRelaxed];
    /// Announces that the owner will sleep. Publishes its alarm.
    sleep: Release, [rouse], "S13", [SleepRelaxed];
    /// Wakes the owner. The alarm is visible.
    rouse: Acquire, [sleep], "S13", [RouseRelaxed];
    /// Announces that the alarm was taken out.
    roused: Release, ["the acquire in `Bed::lie_down`"], "S13", [RousedRelaxed];
    /// Publishes slots that the source has written.
    publish: Release, ["the acquire in `Sink::peek`"], "S5", [PublishRelaxed];
    /// Gives back slots that the owner has emptied.
    give_back: Release, ["the acquire in `Source::has_room`"], "S5", [RoomRelaxed];
    /// Pushes a value on the stack of a wheel that was moved away in the value's callback. Publishes the value.
    /// Pushes a record on the stack of hints. Publishes its link.
    hint: Release, ["the acquire in `Home::take_hints`"], "S8", [HintRelaxed];
}
