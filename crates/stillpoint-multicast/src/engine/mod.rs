//! The engine of the multicast, for all transports. The argument is in `docs/design/multicast.md`.
//!
//! | file | holds |
//! |---|---|
//! | `slots` | the places of registered threads |
//! | `mailbox` | how a message gets to a thread |
//! | `operation` | the function to run, and a node for each receiver |
//! | `operations` | the list of operations: how they are reused, resumed and given back |
//! | `forward` | sending, processing, acknowledging, helping |
//! | `wait` | how an initiator waits |
//! | `leaving` | threads that end without leaving |
//! | `forked` | the child of a `fork` |

// A circle of files: `mailbox`, `operation` and `slots`. A slot has a mailbox, in which lie nodes of operations, which name the slot that
// they are for.

#[cfg(not(any(stillpoint_loom, miri)))]
mod forked;
mod forward;
pub(super) mod leaving;
pub(super) mod mailbox;
#[cfg(all(test, stillpoint_loom))]
mod models;
pub(super) mod operation;
mod operations;
pub(super) mod slots;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
mod wait;

use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32 as PlainU32, Ordering as PlainOrdering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::busted::{self, Variant};
use super::plan::Acknowledgement;
use super::plan::{Shape, Strategy};
use super::transport::Transport;
use operation::{Call, Order};
use operations::Operations;
use slots::{Slot, Slots, View};
use stillpoint_sys::sync::atomic::{fence, Ordering};
use wait::Wait;

const PLAIN: PlainOrdering = PlainOrdering::Relaxed;

/// One group: its threads, and the multicasts to them.
#[derive(Debug)]
pub(crate) struct Core<T> {
    transport: T,
    slots: Slots,
    operations: Operations,
    /// Changes in the child of each `fork`, while it has only one thread. Not modelled.
    forks: PlainU32,
    #[cfg(not(any(stillpoint_loom, miri)))]
    _entry: forked::Entry,
}

/// How a multicast is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) strategy: Strategy,
    pub(crate) acknowledgement: Acknowledgement,
    pub(crate) helps: bool,
    pub(crate) traces: bool,
}

/// How a multicast went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) receivers: u32,
    pub(crate) ran_here: bool,
    pub(crate) sends: u32,
    pub(crate) sent_in: Duration,
    pub(crate) helped: u32,
    pub(crate) adopted: u32,
    /// The shape, if the multicast is traced.
    #[cfg_attr(not(feature = "lab"), allow(dead_code))]
    pub(crate) shape: Option<Shape>,
}

/// How a multicast ended.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// The receivers that had not acknowledged when the time was up; `None` if all have.
    pub(crate) missing: Option<Missing>,
    /// The first panic of a receiver.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

/// Receivers that have not acknowledged.
#[derive(Debug)]
pub(crate) struct Missing {
    /// The number of all receivers.
    pub(crate) receivers: u32,
    /// The ids of those that were sent the message, and have not finished their part.
    pub(crate) threads: Vec<u32>,
}

impl<T: Transport> Core<T> {
    pub(crate) fn new(transport: T) -> Arc<Self> {
        Arc::new_cyclic(|_core| Self {
            transport,
            slots: Slots::new(),
            operations: Operations::new(),
            forks: PlainU32::new(0),
            #[cfg(not(any(stillpoint_loom, miri)))]
            _entry: forked::Entry::new(_core.clone()),
        })
    }

    /// Registers the calling thread, or counts another registration. [`leave`](Core::leave) ends it.
    pub(crate) fn join(&self) -> NonNull<Slot> {
        let (tid, thread) = (stillpoint_sys::linux::thread_id(), stillpoint_sys::os::thread_number());
        let slot = self.slots.find(tid).unwrap_or_else(|| self.slots.claim(tid, thread));
        if !slot.is_of(thread) {
            self.inherit(slot, thread);
        }
        slot.add_join();
        if slot.mailbox.is_open() {
            return NonNull::from(slot);
        }
        // A thread that is about to leave may also come here: a function that it runs may join again.
        slot.mailbox.open();
        if !busted::is(Variant::JoinNoFence) {
            // SeqCst: pairs with the fence in `run`. Either the initiator finds the mailbox open, or all later loads of this
            // thread see the stores that the initiator made before.
            fence(Ordering::SeqCst);
        }
        NonNull::from(slot)
    }

    /// Gives the calling thread a place whose thread had the same id, and was ended behind the C library's back
    /// without leaving. The calling thread leaves in place of that thread.
    ///
    /// The kernel reuses an id only after the thread with that id has ended, and the kernel's locks order the two threads: no
    /// other thread uses the place.
    fn inherit(&self, slot: &Slot, thread: u64) {
        // The registration counts until the end: the functions that run here may join and leave.
        slot.hand_over(thread);
        self.transport.alone(|| {
            slot.mailbox.close();
            self.serve(slot);
        });
        slot.remove_join();
    }

    /// Ends a registration of the calling thread. If it is the last one, processes the thread's messages, leaves, and returns
    /// true. Does nothing if the place no longer belongs to the thread.
    pub(crate) fn leave(&self, slot: &Slot) -> bool {
        if !slot.is_of(stillpoint_sys::os::thread_number()) {
            return false;
        }
        // The last registration counts until the end: the functions that run here may multicast, join, and leave.
        self.transport.alone(|| loop {
            if slot.joins() > 1 {
                slot.remove_join();
                return false;
            }
            if !slot.mailbox.is_open() {
                slot.remove_join();
                self.slots.release(slot);
                return true;
            }
            slot.mailbox.close();
            if busted::is(Variant::LeaveUndrained) {
                slot.mailbox.reset(false);
            }
            self.serve(slot);
        })
    }

    /// Ends all registrations of the calling thread, whose place this is, processes its messages, and leaves.
    fn leave_completely(&self, slot: &Slot) {
        // More than the functions that run here can take away, by dropping what is left in other thread-locals: the place is given back once.
        slot.set_joins(u64::MAX / 2);
        self.transport.alone(|| {
            // A function may join again.
            while slot.mailbox.is_open() {
                slot.mailbox.close();
                self.serve(slot);
            }
            slot.set_joins(0);
            self.slots.release(slot);
        });
    }

    /// Processes the messages of the calling thread, whose place this is. Returns their number.
    pub(crate) fn drain(&self, slot: &Slot) -> usize {
        if slot.mailbox.is_empty() || !slot.is_of(stillpoint_sys::os::thread_number()) {
            return 0;
        }
        self.transport.alone(|| self.serve(slot))
    }

    /// As [`drain`](Core::drain), for callers within [`Transport::alone`]. Takes messages out once: what comes meanwhile is for the next
    /// call, and is announced. Otherwise threads that multicast all the time could keep this one here.
    fn serve(&self, slot: &Slot) -> usize {
        let mut may_take = true;
        let next =
            || (slot.mailbox.has_taken() || std::mem::take(&mut may_take)).then(|| slot.mailbox.next())?;
        std::iter::from_fn(next).map(|node| self.process(node)).count()
    }

    /// The work of a signal handler. Async-signal-safe.
    #[cfg(not(any(stillpoint_loom, miri)))]
    pub(crate) fn serve_thread(&self, tid: u32) {
        if let Some(slot) = self.slots.find(tid) {
            self.serve(slot);
        }
    }

    /// The number of registered threads.
    pub(crate) fn members(&self) -> usize {
        self.slots.view().iter().filter(|slot| slot.mailbox.is_open()).count()
    }

    /// Runs the function on every registered thread, including the calling thread if it is registered.
    ///
    /// # Safety
    /// The function may be called with its data on any thread: until this returns if there is no deadline, and for ever if
    /// there is one. If the transport does not catch panics, the function does not panic, and does only what is allowed where
    /// messages are processed.
    pub(crate) unsafe fn run(&self, options: Options, call: Call, deadline: Option<Instant>) -> Outcome {
        // SAFETY: the function may be called with its data for as long as this needs them, by the caller's promise.
        unsafe { self.run_with(options, call, deadline, |_| None) }
    }

    /// As [`run`](Core::run), but when the time is up, `look` returns the next deadline, or `None` to give up.
    ///
    /// # Safety
    /// As for [`run`](Core::run).
    pub(crate) unsafe fn run_with(
        &self,
        options: Options,
        call: Call,
        deadline: Option<Instant>,
        look: impl FnMut(&Missing) -> Option<Instant>,
    ) -> Outcome {
        // First: it may drop a function that was given up, whose destructor may make this thread join or leave.
        let operation = self.operations.claim();
        let begun = Instant::now();
        let forks = self.forks.load(PLAIN);
        // SeqCst: pairs with the fence in `join`.
        fence(Ordering::SeqCst);
        let view = self.slots.view();
        // Held throughout: the function may drop the thread's registration.
        let held = self.hold(&view);
        let own = held.slot;
        let others =
            view.iter().filter(|&slot| !own.is_some_and(|own| ptr::eq(own, slot)) && slot.mailbox.is_open());
        let bell = own.map(|own| own.mailbox.bell());
        // SAFETY: claimed above; the caller promises what the function needs, and places live as long as the group.
        let order = unsafe { operation.prepare(others, bell, options, call) };
        let sends = self.forward_all(operation, &order);
        let mut tally =
            Tally { receivers: order.receivers, sends, sent_in: begun.elapsed(), ..Tally::default() };
        if own.is_some() {
            tally.ran_here = true;
            self.call(operation, &order);
        }
        let wait = Wait { operation, order, own, helps: options.helps, traces: options.traces, forks };
        self.end(&wait, tally, deadline, look)
    }

    /// Waits for a multicast whose initiator has given up, in that initiator's place. `None` if there is none.
    #[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(crate) fn resume(
        &self,
        deadline: Option<Instant>,
        look: impl FnMut(&Missing) -> Option<Instant>,
    ) -> Option<Outcome> {
        let forks = self.forks.load(PLAIN);
        let operation = self.operations.resume()?;
        // Held throughout: the function may run on this thread.
        let held = self.hold(&self.slots.view());
        // SAFETY: the caller is the initiator now.
        let order = unsafe { operation.order() };
        let wait = Wait { operation, order, own: held.slot, helps: false, traces: false, forks };
        let tally = Tally { receivers: order.receivers, ..Tally::default() };
        Some(self.end(&wait, tally, deadline, look))
    }

    /// Waits until all receivers have acknowledged, or gives up. Gives the operation back.
    fn end(
        &self,
        wait: &Wait<'_>,
        mut tally: Tally,
        mut deadline: Option<Instant>,
        mut look: impl FnMut(&Missing) -> Option<Instant>,
    ) -> Outcome {
        let Wait { operation, ref order, .. } = *wait;
        let mut missing = None;
        while !self.wait(wait, deadline, &mut tally) {
            let threads = operation.missing(order);
            let late = Missing { receivers: order.receivers, threads };
            deadline = look(&late);
            if deadline.is_none() {
                missing = Some(late);
                break;
            }
        }
        tally.adopted = operation.adopted();
        tally.shape = (wait.traces && missing.is_none()).then(|| shape_of(order, tally.sends));
        let panic = operation.take_panic();
        if missing.is_some() && self.operations.abandon(operation) {
            return Outcome { tally, missing, panic };
        }
        // All receivers have acknowledged, perhaps only just now.
        let panic = panic.or_else(|| operation.take_panic());
        // SAFETY: no thread has a message any more. In the child of a fork, there is no other thread.
        unsafe { operation.finish() };
        Outcome { tally, missing: None, panic }
    }

    /// The number of operations of the group.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn operations(&self) -> usize {
        self.operations.count()
    }

    /// Holds the calling thread's place, if it is registered, until the result is dropped.
    fn hold<'c>(&'c self, view: &View<'c>) -> Held<'c, T> {
        let thread = stillpoint_sys::os::thread_number();
        Held::new(self, view.iter().find(|slot| slot.is_of(thread)))
    }

    /// In the child of a `fork`: only the calling thread is registered, as it was.
    ///
    /// # Safety
    /// The calling thread is the only thread of the process, and the copy of the one that called `fork`.
    #[cfg(not(any(stillpoint_loom, miri)))]
    unsafe fn reset_after_fork(&self) {
        self.forks.fetch_add(1, PLAIN);
        self.operations.forget();
        self.slots.reset_after_fork(stillpoint_sys::linux::thread_id(), stillpoint_sys::os::thread_number());
    }
}

/// The initiator's own place, held for the time of its multicast.
struct Held<'c, T: Transport> {
    core: &'c Core<T>,
    slot: Option<&'c Slot>,
}

impl<'c, T: Transport> Held<'c, T> {
    fn new(core: &'c Core<T>, slot: Option<&'c Slot>) -> Self {
        if let Some(slot) = slot {
            slot.add_join();
        }
        Self { core, slot }
    }
}

impl<T: Transport> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // The function may have dropped the thread's last registration.
        if let Some(slot) = self.slot.filter(|slot| self.core.leave(slot)) {
            leaving::forget(NonNull::from(slot));
        }
    }
}

/// The shape of the messages that were sent, after all acknowledgements.
fn shape_of(order: &Order, sends: u32) -> Shape {
    // SAFETY: the operation belongs to the caller, and every message has been sent.
    let messages = (0..order.receivers).map(|number| unsafe { order.node(number).message() });
    messages.fold(Shape { sends, ..Shape::default() }, |shape, message| Shape {
        sends,
        depth: shape.depth.max(message.depth),
        path: shape.path.max(message.path),
    })
}
