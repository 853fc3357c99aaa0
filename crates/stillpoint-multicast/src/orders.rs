//! The orderings that the argument in `docs/design/multicast.md` relies on.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "multicast.md";

    // Mailboxes.

    /// A message is posted. Release: the owner reads it. A later post is a read-modify-write, and so continues the release
    /// sequence. Acquire: the sender of the first message notifies the thread that opened the mailbox, or a later one.
    post: AcqRel, [take, close, "the release in `Mailbox::open`"], "3", [PostRelaxed];
    /// Messages are taken.
    take: Acquire, [post], "3", [TakeRelaxed];
    /// A mailbox is closed, and the messages in it are taken. Release: after everything that its owner did.
    close: AcqRel, [post, closed], "6", [TakeRelaxed, CloseRelaxed => Acquire];
    /// A load that shows whether a mailbox is closed. If it is, the reader comes after everything that its owner did.
    closed: Acquire, [close], "6", [ClosedRelaxed];

    // Acknowledgements.

    /// A count is decremented. Release: everything that was done below the node comes before the decrement of the parent's
    /// count. Acquire: this includes what the threads did that decremented this count before.
    acknowledge: AcqRel, [acknowledge, done, last_acknowledged], "6", [AckRelaxed];
    /// The initiator's load of its count: what the receivers did comes before what it does next.
    done: Acquire, [acknowledge], "6", [DoneRelaxed];
    /// A range is claimed. Its message is read after that.
    help: Acquire, ["the release of OPEN in `Node::write`"], "3", [HelpRelaxed];

    // Operations.

    /// An operation is given back.
    finish: Release, ["the acquire in `Operation::try_claim`"], "13", [FinishRelaxed];
    /// An operation that lingers gets an initiator again, which reads its order.
    resume: Acquire, ["the release in `Operation::linger`"], "13", [ResumeRelaxed];
    /// A load of the count of an operation that lingers: what its receivers did comes before its next use.
    last_acknowledged: Acquire, [acknowledge], "13", [LingerRelaxed];

    // Places.

    /// A place is given back, and the count of its chunk decremented, after everything that the thread did.
    give_back: Release, [passed, empty], "6", [GiveBackRelaxed];
    /// A load of the bits of taken places. A walk that passes over a place comes after everything that its thread did.
    passed: Acquire, [give_back], "6", [PassedRelaxed];
    /// A load that shows whether a chunk is empty.
    empty: Acquire, [give_back], "6", [EmptyRelaxed];
}
