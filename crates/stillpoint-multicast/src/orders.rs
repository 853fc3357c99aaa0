//! The orderings that the argument in `docs/design/multicast.md` relies on.

use crate::busted::{self, Variant};

stillpoint_sys::orders! {
    as in "multicast.md";

    // Mailboxes.

    /// A message is posted: its owner reads it. A later post continues the release sequence, being a read-modify-write.
    /// Acquire: who is told of the first message is the thread that opened the mailbox, or a later one.
    post: AcqRel, [take, close, "the release in `Mailbox::open`"], "3", [PostRelaxed];
    /// Messages are taken.
    take: Acquire, [post], "3", [TakeRelaxed];
    /// A mailbox is closed, after everything that its owner did, and with what is in it.
    close: AcqRel, [post, closed], "6", [TakeRelaxed, CloseRelaxed => Acquire];
    /// A look at whether a mailbox is closed: who finds it so comes after everything that its owner did.
    closed: Acquire, [close], "6", [ClosedRelaxed];

    // Acknowledgements.

    /// A count goes down. Release: what was done below the node comes before what its parent's count tells. Acquire: so does
    /// what others did who counted the node down before.
    acknowledge: AcqRel, [acknowledge, done, last_acknowledged], "6", [AckRelaxed];
    /// The initiator's look at its count: what the receivers did comes before what it does next.
    done: Acquire, [acknowledge], "6", [DoneRelaxed];
    /// A range is taken over: it is read.
    help: Acquire, ["the release of OPEN in `Node::write`"], "3", [HelpRelaxed];

    // Operations.

    /// An operation is given back.
    finish: Release, ["the acquire in `Operation::try_claim`"], "13", [FinishRelaxed];
    /// An operation that lingers gets an initiator again: its order is read.
    resume: Acquire, ["the release in `Operation::abandon`"], "13", [ResumeRelaxed];
    /// A look at the count of an operation that lingers: everybody who has acknowledged is through.
    last_acknowledged: Acquire, [acknowledge], "13", [LingerRelaxed];

    // Places.

    /// A place is given back, and its chunk has one thread less, after everything that the thread did.
    give_back: Release, [passed, empty], "6", [GiveBackRelaxed];
    /// A look at which places of a chunk are taken: who passes over one comes after everything that its thread did.
    passed: Acquire, [give_back], "6", [PassedRelaxed];
    /// A look at whether a chunk is empty.
    empty: Acquire, [give_back], "6", [EmptyRelaxed];
}
