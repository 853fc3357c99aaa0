//! How an initiator waits: it serves its own mailbox, helps, spins for some microseconds, and then sleeps until the last
//! acknowledgement or a message wakes it.
//!
//! As long as a range may still have to be forwarded, it wakes up from time to time to help: the receiver of the range may not
//! have a processor.

use std::ptr;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use super::operation::{Operation, Order, SLEEPING};
use super::slots::Slot;
use super::{Core, Tally, PLAIN};
use crate::busted::{self, Variant};
use crate::orders;
use crate::transport::Transport;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work::step;

const FIRST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// What an initiator waits for, and how.
pub(super) struct Wait<'o> {
    pub(super) operation: &'o Operation,
    pub(super) order: Order,
    /// The calling thread's place.
    pub(super) own: Option<&'o Slot>,
    pub(super) helps: bool,
    pub(super) traces: bool,
    /// The forks of the process when the multicast began.
    pub(super) forks: u32,
}

impl<T: Transport> Core<T> {
    /// Waits for all acknowledgements. False when the time is up.
    pub(super) fn wait(&self, wait: &Wait<'_>, deadline: Option<Instant>, tally: &mut Tally) -> bool {
        let Wait { operation, ref order, own, mut helps, forks, .. } = *wait;
        let (spin, mut sleep, mut next) = (Backoff::new(), FIRST_SLEEP, 0);
        loop {
            // Relaxed: it changes only while this is the only thread of the process.
            if is_complete(operation) || self.forks.load(PLAIN) != forks {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Also while messages keep coming.
            if own.is_some_and(|own| self.drain(own) > 0) && left.is_none_or(|left| !left.is_zero()) {
                continue;
            }
            if helps {
                let sent = self.help(operation, order, tally.sends + tally.helped, &mut next);
                tally.helped += sent;
                if sent > 0 {
                    continue;
                }
                // SAFETY: the caller is the initiator.
                let nodes = (0..order.receivers).map(|number| unsafe { order.node(number) });
                // When every range is claimed, there is nothing left to help with.
                helps = !nodes.inspect(|_| step()).all(|node| node.is_claimed());
            }
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if cfg!(not(stillpoint_loom)) && !spin.is_completed() {
                spin.snooze();
                continue;
            }
            // A thread that waits in another initiator's place is not woken by its own messages.
            let is_deaf = own.is_some_and(|own| !is_told(order, own));
            let limit =
                if is_deaf || helps { Some(left.map_or(sleep, |left| left.min(sleep))) } else { left };
            self.sleep(operation, order, own.filter(|_| !is_deaf), limit);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }

    /// Sleeps until there is a message for the calling thread, or for `limit`. False if the place no longer belongs to the
    /// thread, or the thread is leaving, so that no message can come.
    pub(crate) fn doze(&self, own: &Slot, limit: Option<Duration>) -> bool {
        let is_own = own.is_of(stillpoint_sys::os::thread_number()) && own.mailbox.is_open();
        // Acquire: as in `sleep`.
        let seen = own.mailbox.bell().load(Ordering::Acquire);
        if is_own && own.mailbox.doze() {
            stillpoint_sys::linux::wait(own.mailbox.bell(), seen, limit);
            own.mailbox.rouse();
        }
        is_own
    }

    fn sleep(&self, operation: &Operation, order: &Order, own: Option<&Slot>, limit: Option<Duration>) {
        // SAFETY: the caller starts a multicast.
        let bell = unsafe { order.bell() };
        // Acquire: pairs with the release in `ring`: the thread does not wait for an event that has rung the bell.
        let seen = bell.load(Ordering::Acquire);
        let pending = operation.root().pending();
        let mark = if busted::is(Variant::SleepUnmarked) { 0 } else { SLEEPING };
        // Relaxed, both: a thread that decrements the count to 1 after the mark rings the bell. If the decrement came before the
        // mark, the mark finds 1.
        let is_waiting = pending.fetch_or(mark, Ordering::Relaxed) != 1;
        // The mailbox of a thread that is about to leave is closed.
        if is_waiting && own.is_none_or(|own| !own.mailbox.is_open() || own.mailbox.doze()) {
            stillpoint_sys::linux::wait(bell, seen, limit);
            if let Some(own) = own {
                own.mailbox.rouse();
                // A message that came meanwhile has only rung the bell. The transport was not notified of it, and is not
                // notified of later messages while it is in the mailbox.
                if !busted::is(Variant::RouseUndrained) {
                    self.drain(own);
                }
            }
        }
        pending.fetch_and(!SLEEPING, Ordering::Relaxed);
    }
}

/// Whether the bell of the operation is that of the thread's own mailbox.
fn is_told(order: &Order, own: &Slot) -> bool {
    // SAFETY: the caller starts a multicast.
    ptr::eq(unsafe { order.bell() }, own.mailbox.bell())
}

/// Whether only the initiator's own part of the count is left.
fn is_complete(operation: &Operation) -> bool {
    operation.root().pending().load(orders::done()) == 1
}
