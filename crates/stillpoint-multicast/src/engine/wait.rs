//! How an initiator waits: it serves its own mailbox, helps, spins for some microseconds, and then sleeps until the last
//! acknowledgement or a message wakes it.
//!
//! As long as some range may still have to be forwarded, it looks again after a while: the thread that has it may not
//! have been given a processor.

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
    /// Of the process, when the multicast began.
    pub(super) forks: u32,
}

impl<T: Transport> Core<T> {
    /// Waits for everybody. False when the time is up.
    pub(super) fn wait(&self, wait: &Wait<'_>, deadline: Option<Instant>, tally: &mut Tally) -> bool {
        let Wait { operation, ref order, own, mut helps, forks, .. } = *wait;
        let (spin, mut sleep, mut next) = (Backoff::new(), FIRST_SLEEP, 0);
        loop {
            // Relaxed: changed when there is one thread alone, which is this one.
            if is_complete(operation) || self.forks.load(PLAIN) != forks {
                return true;
            }
            if own.is_some_and(|own| self.drain(own) > 0) {
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
                // Once everything is forwarded, there is nothing to look after any more.
                helps = !nodes.inspect(|_| step()).all(|node| node.is_claimed());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if cfg!(not(loom)) && !spin.is_completed() {
                spin.snooze();
                continue;
            }
            // Who waits in another one's place is not told of its own mail.
            let is_deaf = own.is_some_and(|own| !is_told(order, own));
            let limit =
                if is_deaf || helps { Some(left.map_or(sleep, |left| left.min(sleep))) } else { left };
            self.sleep(operation, order, own.filter(|_| !is_deaf), limit);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }

    /// Sleeps until there is a message for the calling thread, or for `limit`. False if the place is not the thread's
    /// any more, so that there will be none.
    pub(crate) fn doze(&self, own: &Slot, limit: Option<Duration>) -> bool {
        let is_own = own.is_of(stillpoint_sys::os::thread_number());
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
        // Acquire: pairs with the release in `ring`: what rang is not waited for again.
        let seen = bell.load(Ordering::Acquire);
        let pending = operation.root().pending();
        let mark = if busted::is(Variant::SleepUnmarked) { 0 } else { SLEEPING };
        // Relaxed, both: whoever counts down to 1 after the mark rings; before, the mark finds 1.
        let is_waiting = pending.fetch_or(mark, Ordering::Relaxed) != 1;
        // One that is about to leave has no mail.
        if is_waiting && own.is_none_or(|own| !own.mailbox.is_open() || own.mailbox.doze()) {
            stillpoint_sys::linux::wait(bell, seen, limit);
            if let Some(own) = own {
                own.mailbox.rouse();
                // What came meanwhile rang the bell alone: nobody else has been told of it, and as long as it lies
                // there nobody is told of what follows.
                if !busted::is(Variant::RouseUndrained) {
                    self.drain(own);
                }
            }
        }
        pending.fetch_and(!SLEEPING, Ordering::Relaxed);
    }
}

/// Whether the bell that the operation rings is that of the thread's own mailbox.
fn is_told(order: &Order, own: &Slot) -> bool {
    // SAFETY: the caller starts a multicast.
    ptr::eq(unsafe { order.bell() }, own.mailbox.bell())
}

/// Whether only the initiator's own part is left.
fn is_complete(operation: &Operation) -> bool {
    operation.root().pending().load(orders::done()) == 1
}
