//! The orderings that the argument in `docs/design/rcu.md` relies on, with what each pairs with, the step of the argument,
//! and the broken variant that shows that it is needed. Fences, and the orderings that have no row, name their
//! partners in the code; a model may or may not notice if such an ordering is weakened.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "rcu.md";

    // Guards.

    /// A guard's load of the token: a section that carries this token has seen what was unlinked before the token was started.
    enter_token: Acquire, [start], "2", [PinTokenRelaxed];
    /// A guard's entry store. A scan may read this entry instead of the exit of the section before.
    enter: Release, [observe], "4", [EnterRelaxed];
    /// A guard's exit store: the reads of the section happen before what a thread does after it has seen the section over.
    leave: Release, [observe], "4", [LeaveRelaxed];

    // QSBR readers.

    /// A quiescent state's load of the token: a reader that carries it has seen what was unlinked before the token was started.
    report_token: Acquire, [start], "6", [QsbrLoadRelaxed];
    /// A quiescent state's store: the reads before the report happen before what a scan that sees it does next.
    report: Release, [observe], "7", [QsbrStoreRelaxed];
    /// The store of a reader that goes offline, or away, after its reads.
    offline: Release, [observe], "7", [OfflineRelaxed];

    // Protected loads.

    /// The store that sets a slot: the reads of the object that the slot held before come first.
    hazard_set: Release, [hazards], "9", [HazardSetRelaxed];
    /// The store that clears a slot: the reads of the object happen before its free.
    hazard_clear: Release, [hazards, unlent], "9", [HazardClearRelaxed];
    /// The lender's load of its slot: what another thread has read by it comes before the slot is set again.
    unlent: Acquire, [hazard_clear], "9", [UnlentRelaxed];
    /// The store that takes blocks of slots out of use: the reads of what their slots held happen before what a scan does that does
    /// not see these slots any more.
    give_blocks_back: Release, ["the acquire in `Record::blocks`"], "9", [BlocksRelaxed];
    /// The load that confirms the slot: the object is followed after it.
    confirm: Acquire, ["the release in `OwningLink::swap`", "the release by which a typed link is set"], "8", [ProtectReloadRelaxed];
    /// The failed load of a compare-and-exchange: what it finds is followed within a region.
    found: Acquire, ["the release in `OwningLink::swap`"], "4", [FoundRelaxed];

    // Vouching.

    /// The load of the token for which a reader vouches: what it loads from now on is newer than what was unlinked before the token was
    /// started.
    vouch_token: Acquire, [start], "49", [VouchTokenRelaxed];
    /// The store by which a reader vouches: the slots that it has set, and what it did in regions, come before what a writer does that
    /// sees it.
    vouch: Release, [observe], "50", [VouchRelaxed];
    /// A scan's load of what the holder of a record relies on: if it is another holder than the one whose word was read, what that one
    /// did comes before.
    light: Acquire, ["the release in `Record::adopt` and those of other holders: `adopt_owned`, `adopt_slot`, `belong_to_nobody`"], "9", [KindRelaxed];

    // Registration.

    /// The exchange that claims a slot of a registry: what the last holder did comes before it. Release: the slots of the word were
    /// made before.
    claim: AcqRel, [release, claimed], "9", [ClaimRelaxed => Release, SlotsUnseen => Acquire];
    /// The operation that gives a slot of a registry back, after everything that its holder did.
    release: Release, [claim, claimed], "4", [UnregisterRelaxed];
    /// A scan's load that tells which slots are claimed: if a slot is no longer claimed, its last holder has given everything up. If it is
    /// claimed, it is there.
    claimed: Acquire, [claim, release], "45", [ClaimedRelaxed];
    /// Takes a slot out of the count of its group, after everything that its holder did.
    group_left: Release, [group], "45", [GroupRelaxed];
    /// A walk's load of the count of a group: it skips the group after all holders have given everything up.
    group: Acquire, [group_left], "45", [GroupRelaxed];
    /// The stores by which a reader gives up everything. One of them also pairs with the acquire of `more` in `Record::blocks`.
    give_up: Release, [observe, hazards], "4", [UnregisterRelaxed];
    /// Lowers the number of light readers, after everything that the reader read.
    light_reader_gone: Release, [light_readers], "5", [UnregisterRelaxed];
    /// The writer's load of the number of light readers: it comes after all reads of the readers that are no longer counted.
    light_readers: Acquire, [light_reader_gone], "5", [CountRelaxed];

    // Tokens and scans.

    /// Starts a token. A read-modify-write continues the release sequences of earlier starts: a reader that sees
    /// a later token has also seen what was unlinked before this one. Acquire for the same reason, for this thread's own checks.
    start: AcqRel, [enter_token, report_token, vouch_token], "2", [StartRelaxed];
    /// The load of the ordered token: the walk that follows comes after the fence.
    ordered: Acquire, [raise_ordered], "1", [OrderedRelaxed];
    /// Raises the ordered token, after the fence.
    raise_ordered: AcqRel, [ordered], "1", [OrderedRelaxed];
    /// The load of the fenced token: the scan that follows comes after the fence.
    fenced: Acquire, [raise_fenced], "1", [FencedRelaxed];
    /// Raises the fenced token, after the fence.
    raise_fenced: AcqRel, [fenced], "1", [FencedRelaxed];
    /// The load of the completed token: what readers did before they passed happens before what the caller does next.
    completed: Acquire, [raise_completed], "11", [CompletedRelaxed];
    /// Raises the completed token, after the scan.
    raise_completed: AcqRel, [completed], "11", [CompletedRelaxed];
    /// A scan's load of a reader's state: what the reader did in earlier sections happens before what the caller does
    /// next.
    observe: Acquire, [enter, leave, vouch, report, offline, give_up], "4", [ScanRelaxed];
    /// A scan's load of a slot: what the reader did with an object that it has released happens before the object is freed.
    hazards: Acquire, [hazard_set, hazard_clear, give_up], "9", [HazardScanRelaxed];

    // Hand-over.

    /// Pushes an object, or puts taken ones back: the unlink, and everything else before, happens before the object is taken. A later push,
    /// being a read-modify-write, continues the release sequence.
    push: Release, [take], "13", [HandoverRelaxed];
    /// Takes everything. Release: a thread that finds the stack empty sees what the taker did before.
    take: AcqRel, [push, "the acquire in `Stack::is_empty`"], "13", [HandoverRelaxed, TakeUnseen => Acquire];
    /// Counts a retire handle out. Their number changes by read-modify-writes only, so this orders what each of them did.
    handle_gone: Release, [handles], "When a run ends", [LastHandleRelaxed];
    /// A run's load of the number of handles: it comes before its loads of what the dropped handles submitted, and of the phase.
    handles: Acquire, [handle_gone], "When a run ends", [LastHandleRelaxed];

    // Callbacks.

    /// Pushes a callback: what was unlinked, and the node, come before the callback is taken. Acquire: the node before it, or the
    /// empty lane, was initialised before. Also takes a lane, before the token is started. Release: the lane is empty for the next thread
    /// that pushes.
    swap_tail: AcqRel, [swap_tail], "30", [PushRelaxed];
    /// Links a node to the one before it, which the pushing thread does not use any more.
    link: Release, [linked], "31", [LinkRelaxed];
    /// Loads the next node, after which the node before it may be freed.
    linked: Acquire, [link], "31", [LinkRelaxed];
    /// Begins a turn, or finds a pause over: this comes after everything done in earlier turns.
    turn_taken: Acquire, [turn_ended], "33", [ServedRelaxed];
    /// Ends a turn, or a pause.
    turn_ended: Release, [turn_taken], "33", [ServedRelaxed];

    // Limits.

    /// Reserves room: the destructors that freed this room happen before what the retirer does next.
    reserve: Acquire, [give_back], "20", [RoomRelaxed];
    /// Gives room back, after the destructor. The reservations in between continue the release sequence.
    give_back: Release, [reserve, taken], "20", [RoomRelaxed];
    /// Loads how much is taken up: a run that finds nothing comes after the destructors, and after what they submitted.
    taken: Acquire, [give_back], "21", [TakenRelaxed];

    // Futures.

    /// Leaves word at the lists of futures: a future that comes to the lists later sees the state that the caller has published, or seen.
    leave_word: Release, [lists], "23", [AnswerUnseen];
    /// The first step of each turn at the lists, with their lock: it comes after the turns before.
    lists: Acquire, [leave_word, lists_left], "23", [WakersRelaxed];
    /// Unlocks the lists, after a turn.
    lists_left: Release, [lists], "23", [WakersRelaxed];

    // Objects that name their domain.

    /// Lists a domain: threads that look see it.
    list: Release, [look], "27", [ListRelaxed];
    /// Begins to look at what is listed; or finds that the domain has ended, and comes after that.
    look: Acquire, [list, end], "27", [ListRelaxed];
    /// Ends a domain, after its last handle.
    end: Release, [look], "28", [EndRelaxed];
    /// Ends a look.
    looked: Release, [clear], "27", [LookedRelaxed];
    /// Finds that no thread looks any more: what is listed is taken out after this.
    clear: Acquire, [looked], "27", [LookedRelaxed];

    // Boosting.

    /// A booster begins, after the last one that used the cells has finished.
    boost_start: Acquire, [boost_finish, "the releases in `BoostState::open` and `abandon`"], "15", [BoostWordRelaxed];
    /// A thread has finished with a boost. Acquire: what the others did comes before, too.
    boost_finish: AcqRel, [boost_start, "the acquire in `BoostState::close`"], "15", [BoostWordRelaxed];
}
