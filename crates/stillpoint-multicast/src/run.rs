use std::fmt;
use std::time::{Duration, Instant};

use super::engine::operation::Call;
use super::engine::{Core, Missing, Options, Outcome, Tally};
use super::plan::{Acknowledgement, Strategy};
use super::transport::Polled;

/// With more receivers than this, the default is a tree.
///
/// The number lies between two measurements; it is not an optimum. By signals on two processors (`stillpoint bench membarrier`),
/// the difference between flat and tree is within the noise at 2 and at 8 threads. At 32 threads, sending along the tree takes the
/// initiator a third of the time. Nothing between 8 and 32 was measured. The simulator models interrupts of processors, not threads.
pub(crate) const THRESHOLD: u32 = 16;

impl Default for Options {
    fn default() -> Self {
        Self {
            strategy: Strategy::Hybrid(THRESHOLD),
            acknowledgement: Acknowledgement::Combining,
            helps: true,
            traces: false,
        }
    }
}

/// A multicast that has not been started: made by [`Group::multicast`](super::Group::multicast).
///
/// It reaches every thread, including the calling one, that is registered when it is started and does not leave
/// meanwhile. A thread that joins or leaves meanwhile may or may not be reached. A thread that leaves and joins again
/// meanwhile may run the function more than once.
///
/// ```
/// use stillpoint_multicast::{Group, Strategy};
///
/// let group = Group::new();
/// let _member = group.join(); // the calling thread takes part as any other
/// let report = group.multicast().strategy(Strategy::Tree).run(|| println!("the routes have changed"));
/// assert_eq!((report.ran_here, report.receivers), (true, 0));
/// ```
#[derive(Clone)]
#[must_use = "nothing is sent before `run`"]
pub struct Multicast<'g> {
    core: &'g Core<Polled>,
    options: Options,
}

impl<'g> Multicast<'g> {
    pub(super) fn new(core: &'g Core<Polled>) -> Self {
        Self { core, options: Options::default() }
    }

    /// Sets who sends to whom; by default [`Strategy::Hybrid`] with a threshold of 16, which is no measured optimum.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// Runs `function` once on every member, and returns when all have.
    ///
    /// Takes as long as the last member takes to [`poll`](super::Member::poll). The work is linear in the members; places of
    /// members that have left cost at most one load for 64 places.
    ///
    /// While it waits, it serves the calling thread's own mailbox: two members may multicast to each other. `function` may
    /// start multicasts.
    ///
    /// # Panics
    /// If `function` panics: resumes the first panic when every member has run the function.
    pub fn run<F: Fn() + Sync>(self, function: F) -> Report {
        // SAFETY: `function` is alive until `run` returns, and is `Sync`. Panics are caught.
        let outcome = unsafe { self.core.run(self.options, Call::borrowed(&function), None) };
        finish(outcome, None).unwrap_or_else(|late| unreachable!("without a limit: {late}"))
    }

    /// As [`run`](Multicast::run), for at most `limit`.
    ///
    /// # Errors
    /// [`Late`] when the time is up. Members that have not run the function run it at their next poll: hence `'static`. When all have
    /// run it, it is dropped: by the last one, by the caller, or by a thread that starts a multicast.
    ///
    /// # Panics
    /// As [`run`](Multicast::run), also when the time is up. A panic after that is discarded.
    pub fn run_timeout<F: Fn() + Send + Sync + 'static>(
        self,
        limit: Duration,
        function: F,
    ) -> Result<Report, Late> {
        let Some(deadline) = Instant::now().checked_add(limit) else { return Ok(self.run(function)) };
        // SAFETY: the operation owns `function` until it is not called any more. Panics are caught.
        let outcome = unsafe { self.core.run(self.options, Call::owned(function), Some(deadline)) };
        finish(outcome, None)
    }
}

/// For measurements, with the feature `lab`.
#[cfg(feature = "lab")]
impl Multicast<'_> {
    /// Sets how the initiator learns of the end; by default [`Acknowledgement::Combining`].
    /// See the [example](Multicast::trace).
    pub fn acknowledgement(mut self, acknowledgement: Acknowledgement) -> Self {
        self.options.acknowledgement = acknowledgement;
        self
    }

    /// Sets whether the initiator, while it waits, forwards the ranges of receivers that have not begun; by default it does.
    /// Without help, a thread that does not get a processor holds up every receiver below it.
    /// See the [example](Multicast::trace).
    pub fn helping(mut self, helps: bool) -> Self {
        self.options.helps = helps;
        self
    }

    /// Sets whether the [`Report`] has the shape of the tree that was sent, which takes a read of every receiver's node; by
    /// default it does not.
    ///
    /// ```
    /// use stillpoint_multicast::{Acknowledgement, Group, Strategy};
    ///
    /// let group = Group::new();
    /// let _member = group.join();
    /// let report = group
    ///     .multicast()
    ///     .strategy(Strategy::Tree)
    ///     .acknowledgement(Acknowledgement::SharedCounter)
    ///     .helping(false)
    ///     .trace(true)
    ///     .run(|| ());
    /// assert_eq!(report.shape, Some(Strategy::Tree.shape(report.receivers as u32)));
    /// ```
    pub fn trace(mut self, traces: bool) -> Self {
        self.options.traces = traces;
        self
    }
}

stillpoint_sys::debug!(|this| Multicast<'_> { options: this.options, .. });

/// Turns the outcome into the caller's result, or resumes a panic. `signal` is the signal that was used, if any.
pub(super) fn finish(outcome: Outcome, signal: Option<i32>) -> Result<Report, Late> {
    if let Some(panic) = outcome.panic {
        std::panic::resume_unwind(panic);
    }
    outcome
        .missing
        .map_or_else(|| Ok(Report::new(&outcome.tally)), |missing| Err(Late::new(&missing, signal)))
}

/// How a multicast went: see [`Multicast::run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The threads to which the message was sent: all that were registered, without the calling one.
    pub receivers: usize,
    /// Whether the calling thread is a member itself, and has run the function.
    pub ran_here: bool,
    /// The messages that the initiator sent before it began to wait.
    pub sends: usize,
    /// How long the initiator took to find the receivers and send these messages.
    pub sent_in: Duration,
    /// The messages that the initiator sent while it waited, in place of receivers that had not begun.
    pub helped: usize,
    /// The receivers that had left before the message was sent. They have not run the function.
    pub adopted: usize,
    /// The shape of the tree that was sent, if it was [traced](Multicast::trace).
    #[cfg(feature = "lab")]
    pub shape: Option<super::plan::Shape>,
}

impl Report {
    pub(super) fn new(tally: &Tally) -> Self {
        Self {
            receivers: tally.receivers as usize,
            ran_here: tally.ran_here,
            sends: tally.sends as usize,
            sent_in: tally.sent_in,
            helped: tally.helped as usize,
            adopted: tally.adopted as usize,
            #[cfg(feature = "lab")]
            shape: tally.shape,
        }
    }
}

/// The time was up before every thread had run the function.
///
/// A [fence](super::signals::SignalMulticast::fence) may return the error of an earlier fence that gave up. The
/// error then describes the receivers of that fence, and those of them that hold it up.
///
/// ```
/// use std::{sync::Barrier, time::Duration};
/// use stillpoint_multicast::Group;
///
/// let (group, step) = (Group::new(), Barrier::new(2));
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let member = group.join();
///         step.wait();
///         step.wait(); // is busy with something else
///         member.poll();
///     });
///     step.wait();
///     let late = group.multicast().run_timeout(Duration::from_millis(2), || ()).unwrap_err();
///     assert_eq!((late.receivers(), late.threads().len()), (1, 1));
///     assert!(late.blocked().is_empty()); // no signal is used
///     step.wait();
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    pub(super) receivers: usize,
    pub(super) threads: Vec<u32>,
    pub(super) signal: Option<i32>,
    pub(super) blocked: Vec<u32>,
    /// Threads that do not exist any more.
    pub(super) ended: Vec<u32>,
    /// Threads that `/proc` does not show.
    pub(super) unknown: Vec<u32>,
    pub(super) is_replaced: bool,
    /// The error number of the system call that sends; 0 if it succeeded.
    pub(super) refused: i32,
}

impl Late {
    /// Finds out why the threads do not answer, if a signal was used.
    pub(super) fn new(missing: &Missing, signal: Option<i32>) -> Self {
        let late = Self {
            receivers: missing.receivers as usize,
            threads: missing.threads.clone(),
            signal,
            blocked: Vec::new(),
            ended: Vec::new(),
            unknown: Vec::new(),
            is_replaced: false,
            refused: 0,
        };
        #[cfg(not(any(stillpoint_loom, miri)))]
        let late = late.looked_at();
        late
    }

    /// The number of threads to which the message was sent.
    pub fn receivers(&self) -> usize {
        self.receivers
    }

    /// The ids of the threads that have the message, and have not run the function, or have not yet forwarded the message to the
    /// receivers that were delegated to them.
    pub fn threads(&self) -> &[u32] {
        &self.threads
    }

    /// Those of [`threads`](Late::threads) that block the signal, as `/proc` shows it; none if no signal is used. After a
    /// timeout, this includes a thread that was preempted within a handler, and not one that waits for the signal (`sigwait`).
    /// After a fence that failed, it is the other way round.
    pub fn blocked(&self) -> &[u32] {
        &self.blocked
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (late, all) = (self.threads.len(), self.receivers);
        write!(f, "{late} of {all} threads have not run the function in time")?;
        match (self.signal, self.blocked.as_slice(), self.threads.as_slice()) {
            (Some(signal), ..) if self.is_replaced => {
                write!(f, ": another handler was installed for signal {signal}; choose another signal")
            }
            (Some(signal), ..) if self.refused != 0 => {
                let cause = std::io::Error::from_raw_os_error(self.refused);
                write!(f, ": signal {signal} could not be sent ({cause}); allow tgkill")
            }
            (Some(signal), [first, ..], _) => {
                write!(
                    f,
                    ": thread {first} blocks signal {signal}; unblock it there, or let the thread leave"
                )
            }
            (Some(_), [], _) if !self.ended.is_empty() => {
                write!(f, ": thread {} has ended without leaving; let threads return", self.ended[0])
            }
            (Some(_), [], [first, ..]) => {
                write!(f, ": thread {first} was not given a processor, or is stopped")
            }
            (None, _, [first, ..]) => write!(f, ": thread {first} does not poll"),
            (_, _, []) => Ok(()),
        }
    }
}

impl std::error::Error for Late {}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::plan::Shape;

    #[test]
    fn a_report_tells_what_was_counted() {
        let (shape, sent_in) = (Some(Shape { sends: 5, depth: 6, path: 7 }), Duration::from_nanos(8));
        let tally = Tally { receivers: 1, ran_here: true, sends: 2, sent_in, helped: 3, adopted: 4, shape };
        let report = Report::new(&tally);
        assert_eq!((report.receivers, report.sends, report.helped, report.adopted), (1, 2, 3, 4));
        assert_eq!((report.ran_here, report.sent_in), (true, sent_in));
        #[cfg(feature = "lab")]
        assert_eq!(report.shape, shape);
    }
}
