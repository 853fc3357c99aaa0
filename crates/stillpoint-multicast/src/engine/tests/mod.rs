//! The engine, step by step: the test itself serves the members, so that it can produce each order of events.

mod bounded;
mod delivered;
mod given_up;
#[cfg(not(miri))]
mod inherited;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::slots::Slot;
use super::Core;
use crate::transport::{Polled, Transport};

/// A limit for waits that should end at once: long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// A transport that calls a function instead of notifying a thread.
struct Scripted<F>(F);

impl<F: Fn(u32) + Send + Sync + 'static> Transport for Scripted<F> {
    const CATCHES: bool = true;

    fn notify(&self, tid: u32) {
        (self.0)(tid);
    }

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        function()
    }
}

/// Members without threads, whose ids are 1, 2, 3 and so on.
fn members<T: Transport>(core: &Core<T>, count: u32) -> Vec<&Slot> {
    let ids = 1..=count;
    ids.map(|tid| {
        let slot = core.slots.claim(tid, u64::MAX - u64::from(tid));
        slot.set_joins(1);
        slot.mailbox.open();
        slot
    })
    .collect()
}

/// Polls for a member. Returns the number of messages.
fn serve<T: Transport>(core: &Core<T>, member: &Slot) -> usize {
    core.serve(member)
}

/// Leaves for a member.
fn leave<T: Transport>(core: &Core<T>, member: &Slot) {
    member.mailbox.close();
    serve(core, member);
    member.set_joins(0);
    core.slots.release(member);
}

/// Calls `body` while another thread is a member. That thread polls whenever `body` calls the function that it gets.
fn beside_a_member(core: &Core<Polled>, body: impl FnOnce(&dyn Fn())) {
    let ((ask, asked), (say, done)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            let slot = core.join();
            // SAFETY: places live as long as their group.
            let slot = unsafe { slot.as_ref() };
            let mut goes_on = say.send(()).is_ok();
            // Until the other side is dropped.
            while goes_on && asked.recv().is_ok() {
                core.drain(slot);
                goes_on = say.send(()).is_ok();
            }
            core.leave(slot);
        });
        done.recv().expect("the member is there");
        body(&move || {
            ask.send(()).expect("the member is there");
            done.recv().expect("the member is there");
        });
    });
}
