//! The orderings that the argument in `docs/design/timer.md` relies on: those of timers that threads share.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "timer.md";

    /// A timer is claimed for another arming: its value was taken before it is written again.
    claim: Acquire, [taken, revoked, finish, "the releases in `Record::abandon` and `Record::reset`"], "S4", [ClaimRelaxed];
    /// A timer is armed: its value and its schedule are seen.
    arm: Release, [find, cancel, lock, "the acquire in `schedule`"], "S3", [ArmRelaxed];
    /// A canceller's look: if the timer is armed, its value is seen; if it has fired, what its callback did.
    find: Acquire, [arm, reset, begin, finish_beat, finish], "S3", [FindRelaxed];
    /// A canceller's exchange. Beats may have come and gone since its look, and the state be the same again.
    cancel: Acquire, [arm, reset, finish_beat], "S3", [CancelRelaxed];
    /// A canceller has taken the value.
    taken: Release, [claim], "S4", [TakenRelaxed];
    /// The owner has taken a revoked value.
    revoked: Release, [claim], "S4", [RevokedRelaxed];
    /// A callback has run.
    finish: Release, [claim, find], "S4", [FinishRelaxed];
    /// A callback of a periodic timer has run, and the value is back.
    finish_beat: Release, [find, cancel, lock], "S3", [FinishRelaxed];
    /// A callback begins: whoever sees it running sees in which thread.
    begin: Release, [find], "S14", [BeginRelaxed];
    /// A timer is about to be reset: its flags are seen, and what an earlier reset has written comes before what this one does.
    lock: Acquire, [arm, reset, finish_beat], "S12", [LockRelaxed];
    /// A timer was reset: its schedule is seen, and its value, as before.
    reset: Release, [find, cancel, lock, "the acquire in `schedule`"], "S12", [ResetRelaxed];
    /// A callback has ended that somebody waits for.
    end: Release, [await_end], "S14", [EndRelaxed];
    /// Whoever is about to wait for it: if it is counted here, its end is seen.
    await_end: Acquire, [end], "S14", [EndRelaxed];
    /// The owner is about to sleep: its alarm is seen.
    sleep: Release, [rouse], "S13", [SleepRelaxed];
    /// Whoever rouses the owner has the alarm.
    rouse: Acquire, [sleep], "S13", [RouseRelaxed];
    /// The place of the alarm is empty again.
    roused: Release, ["the acquire in `Home::sleep`"], "S13", [RousedRelaxed];
    /// A source's ring: the slots were written.
    publish: Release, ["the acquire in `Sink::peek`"], "S5", [PublishRelaxed];
    /// A source's ring: the slots were emptied.
    give_back: Release, ["the acquire in `Source::has_room`"], "S5", [RoomRelaxed];
    /// A record is pushed on the stack of hints: its link is seen.
    hint: Release, ["the acquire in `Home::take_hints`"], "S8", [HintRelaxed];
}
