//! What differs between the ways in which a message gets to a thread.

/// How a thread is told that it has mail. Everything else (who sends to whom, mailboxes, acknowledgements, helping,
/// joining and leaving) is the same for all of them.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Whether a function that panics is kept from unwinding into whoever serves the mailbox. If not, it must not panic.
    const CATCHES: bool;

    /// Tells the thread with this id that its mailbox is no longer empty. It may have left, and served it, meanwhile;
    /// then the id may be another thread's. Called also where messages are processed: for signals, in a signal handler.
    /// Nobody is there to be told that it has failed: an initiator whose receivers do not answer tells them again.
    fn notify(&self, tid: u32);

    /// Runs `function` while nobody else on the calling thread serves its mailbox.
    fn alone<R>(&self, function: impl FnOnce() -> R) -> R;
}

/// The thread looks into its mailbox now and then, or sleeps beside it.
#[derive(Debug, Default)]
pub(crate) struct Polled;

impl Transport for Polled {
    const CATCHES: bool = true;

    fn notify(&self, _tid: u32) {}

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        function()
    }
}
