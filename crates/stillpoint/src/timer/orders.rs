//! The orderings that the argument in `docs/design/timer.md` relies on: those of timers that threads share.

use super::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "timer.md";

    /// A timer is claimed for another arming: its value was taken before it is written again.
    claim: Acquire, [taken, revoked, finish, "the release in `Record::abandon`"], "S4", [ClaimRelaxed];
    /// A timer is armed: its value and its schedule are seen.
    arm: Release, [find, cancel, "the acquires in `begin` and `schedule`"], "S3", [ArmRelaxed];
    /// A canceller's look: if the timer is armed, its value is seen; if it has fired, what its callback did.
    find: Acquire, [arm, finish_beat, finish], "S3", [FindRelaxed];
    /// A canceller's exchange. Beats may have come and gone since its look, and the state be the same again.
    cancel: Acquire, [arm, finish_beat], "S3", [CancelRelaxed];
    /// A canceller has taken the value.
    taken: Release, [claim], "S4", [TakenRelaxed];
    /// The owner has taken a revoked value.
    revoked: Release, [claim], "S4", [RevokedRelaxed];
    /// A callback has run.
    finish: Release, [claim, find], "S4", [FinishRelaxed];
    /// A callback of a periodic timer has run, and the value is back.
    finish_beat: Release, [find, cancel, "the acquire in `begin`"], "S3", [FinishRelaxed];
    /// A source's ring: the slots were written.
    publish: Release, ["the acquire in `Sink::peek`"], "S5", [PublishRelaxed];
    /// A source's ring: the slots were emptied.
    give_back: Release, ["the acquire in `Source::has_room`"], "S5", [RoomRelaxed];
    /// A record is pushed on the stack of hints: its link is seen.
    hint: Release, ["the acquire in `Home::take_hints`"], "S8", [HintRelaxed];
}
