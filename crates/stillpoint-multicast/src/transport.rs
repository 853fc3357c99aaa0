//! The differences between the ways to get a message to a thread.

/// How a thread is notified of a message. Everything else (who sends to whom, mailboxes, acknowledgements, helping,
/// joining and leaving) is the same for all of them.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Whether a panic of a function is caught before it unwinds into the code that serves the mailbox. If not,
    /// functions must not panic, and are not freed there.
    const CATCHES: bool;

    /// Notifies the thread with this id that its mailbox is no longer empty. Meanwhile the thread may have served the mailbox
    /// and left; then the id may belong to another thread. Also called where messages are processed: for signals, in a signal
    /// handler. Returns no error: an initiator whose receivers do not answer notifies them again.
    fn notify(&self, tid: u32);

    /// Runs `function` while no handler on the calling thread serves its mailbox.
    fn alone<R>(&self, function: impl FnOnce() -> R) -> R;
}

/// The thread polls its mailbox, or sleeps until a message wakes it.
#[derive(Debug, Default)]
pub(crate) struct Polled;

impl Transport for Polled {
    const CATCHES: bool = true;

    fn notify(&self, _tid: u32) {}

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        function()
    }
}
