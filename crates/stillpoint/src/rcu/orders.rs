//! Every ordering that the argument in `docs/design/rcu.md` relies on, with what it pairs with, the step of the argument,
//! and the broken variant that shows that it is needed. Where the code names an ordering itself, it says why there.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "rcu.md";

    // Guards.

    /// A guard's load of the token: a section that carries this token has seen what was unlinked before it was started.
    enter_token: Acquire, [start], "2", [PinTokenRelaxed];
    /// A guard's entry store. A scan may read this entry in place of the end of the section before.
    enter: Release, [observe], "4", [EnterRelaxed];
    /// A guard's exit store: what the section has read happens before what is done by who sees it over.
    leave: Release, [observe], "4", [LeaveRelaxed];

    // QSBR readers.

    /// A quiescent state's load of the token: a reader that carries it has seen what was unlinked before it was started.
    report_token: Acquire, [start], "6", [QsbrLoadRelaxed];
    /// A quiescent state's store.
    report: Release, [observe], "7", [QsbrStoreRelaxed];
    /// The store of a reader that goes offline.
    offline: Release, [observe], "7", [OfflineRelaxed];

    // Protected loads.

    /// The store that sets a slot: the slot's last object has been left before.
    hazard_set: Release, [hazards], "9", [HazardSetRelaxed];
    /// The store that clears a slot: the reads of the object happen before its free.
    hazard_clear: Release, [hazards], "9", [HazardClearRelaxed];
    /// The load that confirms: the object is followed.
    confirm: Acquire, ["the release in `Link::swap`", "the release by which a typed link is set"], "8", [ProtectReloadRelaxed];
    /// What a compare-and-exchange finds in place of what was expected is followed within a region.
    found: Acquire, ["the release in `Link::swap`"], "4", [FoundRelaxed];

    // Registration.

    /// The exchange that claims a slot of a registry: what its last holder did comes before.
    claim: Acquire, [release], "9", [ClaimRelaxed];
    /// The operation that gives a slot of a registry back, after everything that its holder did.
    release: Release, [claim, claimed], "4", [UnregisterRelaxed];
    /// A scan's load of which slots are claimed: one that no longer is has been left.
    claimed: Acquire, [release], "4", [UnregisterRelaxed];
    /// The stores by which a reader gives everything up.
    give_up: Release, [observe, hazards], "4", [UnregisterRelaxed];
    /// The number of light readers goes down, after everything that the reader read.
    light_reader_gone: Release, [light_readers], "5", [UnregisterRelaxed];
    /// The writer's load of that number: it then comes after everything that those read who are no longer counted.
    light_readers: Acquire, [light_reader_gone], "5", [CountRelaxed];

    // Tokens and scans.

    /// A token is started. A read-modify-write, which continues the release sequences of earlier starts: a reader that sees
    /// a later token has also seen what was unlinked before this one. Acquire for the same reason, of this thread's checks.
    start: AcqRel, [enter_token, report_token], "2", [StartRelaxed];
    /// The load of the fenced token: the scan that follows comes after the fence.
    fenced: Acquire, [raise_fenced], "1", [FencedRelaxed];
    /// The fenced token is raised, after the fence.
    raise_fenced: AcqRel, [fenced], "1", [FencedRelaxed];
    /// The load of the completed token: what readers did before they passed happens before what the caller does next.
    completed: Acquire, [raise_completed], "11", [CompletedRelaxed];
    /// The completed token is raised, after the scan.
    raise_completed: AcqRel, [completed], "11", [CompletedRelaxed];
    /// A scan's load of a reader's state: what the reader did in sections before it happens before what the caller does
    /// next.
    observe: Acquire, [enter, leave, report, offline, give_up], "4", [ScanRelaxed];
    /// A gathering's load of a slot: what the reader did with an object that it has left happens before its free.
    hazards: Acquire, [hazard_set, hazard_clear, give_up], "9", [HazardScanRelaxed];

    // Hand-over.

    /// An object is pushed: the unlink, and everything else before, happens before its taking. A later push continues the
    /// release sequence, being a read-modify-write.
    push: Release, [take], "13", [HandoverRelaxed];
    /// Everything is taken. Release: who finds the stack empty sees what the taker did before.
    take: AcqRel, [push, "the acquire in `Stack::is_empty`"], "13", [HandoverRelaxed, TakeUnseen => Acquire];
    /// A chain joins the line of objects that nobody looks after.
    join_line: Release, [take_line], "13", [LineRelaxed];
    /// The line is taken. Release: who finds it empty sees what the taker did before.
    take_line: AcqRel, [join_line, "the acquire in `Orphans::is_empty`"], "13", [LineRelaxed];
    /// Whoever had objects in his hands has put them somewhere.
    moved: Release, [movers], "34", [MovedRelaxed];
    /// A collector looks at all places, and at the lists of others, after those who were moving objects.
    movers: Acquire, [moved], "34", [MovedRelaxed];
    /// A retire handle that goes: for each of them, since their number changes by read-modify-writes only.
    handle_gone: Release, [handles], "When a run ends", [LastHandleRelaxed];
    /// A run's load of the number of handles: what those submitted who are gone is seen after, and their phase.
    handles: Acquire, [handle_gone], "When a run ends", [LastHandleRelaxed];

    // Callbacks.

    /// A callback is pushed: what was unlinked, and its node, come before its taking. Acquire: the node before it, or the empty
    /// lane, was made ready before.
    push_callback: AcqRel, [take_callbacks], "30", [PushRelaxed];
    /// A lane is taken: before the token is started. Release: the lane is empty for whoever pushes next.
    take_callbacks: AcqRel, [push_callback], "30", [PushRelaxed];
    /// A node is linked to the one before it, which the thread that pushes does not use any more.
    link: Release, [linked], "31", [LinkRelaxed];
    /// The load of the next node: the one before it may be freed.
    linked: Acquire, [link], "31", [LinkRelaxed];
    /// A turn begins, or a pause finds that it is over: after all that was done in turns before.
    turn_taken: Acquire, [turn_ended], "33", [ServedRelaxed];
    /// A turn ends, or a pause.
    turn_ended: Release, [turn_taken], "33", [ServedRelaxed];

    // Limits.

    /// Room is reserved: what the destructors did whose room it is happens before what the retirer does next.
    reserve: Acquire, [give_back], "20", [RoomRelaxed];
    /// Room is given back, after the destructor. The reservations in between continue the release sequence.
    give_back: Release, [reserve], "20", [RoomRelaxed];
    /// An object is added to what is counted at a place: who no longer sees another one there sees it where it went.
    add: Acquire, [subtract, set_counted], "21", [TallyRelaxed];
    /// Objects are no longer counted at a place.
    subtract: Release, [add, counted], "21", [TallyRelaxed];
    /// What is counted at a place, written by its only writer.
    set_counted: Release, [add, counted], "21", [TallyRelaxed];
    /// A load of what is counted at a place.
    counted: Acquire, [subtract, set_counted], "21", [TallyRelaxed];

    // Turns at the retire list that handles share.

    /// A turn is counted, after its lock was taken.
    turn: Release, [turns], "22", [TurnRelaxed];
    /// Whoever looks for what is left sees the lock of each turn that is counted, and looks at nothing before.
    turns: Acquire, [turn], "22", [TurnRelaxed];

    // Objects that name their domain.

    /// A domain is listed: those who look see it.
    list: Release, [look], "27", [ListRelaxed];
    /// Somebody begins to look at what is listed; or finds that the domain has ended, and comes after that.
    look: Acquire, [list, end], "27", [ListRelaxed];
    /// A domain ends, after its last handle.
    end: Release, [look], "28", [EndRelaxed];
    /// Somebody has looked.
    looked: Release, [clear], "27", [LookedRelaxed];
    /// Nobody looks any more: what is listed is taken out.
    clear: Acquire, [looked], "27", [LookedRelaxed];

    // Boosting.

    /// A booster begins: whoever was at the cells is through.
    boost_start: Acquire, [boost_finish, "the releases in `BoostState::open` and `abandon`"], "15", [BoostWordRelaxed];
    /// Somebody has done with a boost. Acquire: what the others did comes before, too.
    boost_finish: AcqRel, [boost_start, "the acquire in `BoostState::close`"], "15", [BoostWordRelaxed];
}
