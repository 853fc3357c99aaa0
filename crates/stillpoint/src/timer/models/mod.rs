//! loom models of timers across threads, on the engine itself.
//!
//! `RUSTFLAGS="--cfg stillpoint_loom --cfg stillpoint_busted" cargo test -p stillpoint --release --lib timer::models`

mod controls;
mod ends;
mod messages;
mod waits;

use std::num::NonZeroU64;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use super::shared::{Cause, Mailbox, Outcome, SharedTimer, TimerService};
use super::{Limit, Schedule};

/// Loom's message when two accesses are not ordered.
const UNORDERED: &str = "Causality violation";
/// A model's message when a timer has two ends, or none.
const ENDS: &str = "a timer does not have one end";
/// A model's message when a timer fires before its deadline.
const EARLY: &str = "a timer is early";
/// A model's message when a cancelled timer stays in the wheel.
const PILED_UP: &str = "a cancelled timer is still there";

/// A value whose accesses loom watches. It holds the deadline that its timer was armed with.
struct Object(UnsafeCell<u64>);

// SAFETY: written only by `new` and `drop`; the models check that both are ordered with every read.
unsafe impl Send for Object {}

impl Object {
    fn new(deadline: u64) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: not shared yet.
        cell.with_mut(|place| unsafe { *place = deadline });
        Self(cell)
    }

    fn deadline(&self) -> u64 {
        // SAFETY: the protocol under test gives the object to one thread at a time; loom reports it where it does not.
        self.0.with(|place| unsafe { *place })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the protocol under test gives the object to one thread at a time; loom reports it where it does not.
        self.0.with_mut(|place| unsafe { *place = u64::MAX });
    }
}

loom::lazy_static! {
    static ref TURNS: AtomicUsize = AtomicUsize::new(0);
}

/// Lets loom try the next operation both before and after those of other threads.
///
/// Loom considers only the last access to an atomic. A thread that loads and then exchanges has made the last access
/// itself, so loom would not try the exchange before another thread's earlier load.
fn turn() {
    // Relaxed: orders nothing.
    TURNS.fetch_add(1, Ordering::Relaxed);
}

type Service = TimerService<Object>;
type Timer = SharedTimer<Object>;

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
    stillpoint_sys::busted::assert_reached();
}

/// A service with a timer that is armed for this time.
fn armed(deadline: u64) -> (Service, Timer) {
    let mut service = Service::new(0);
    let timer = service.remote().timer();
    service.arm(&timer, deadline, Object::new(deadline)).expect("at rest");
    (service, timer)
}

/// A service with a timer at rest, and a mailbox with room for this many messages.
fn with_mailbox(places: usize) -> (Service, Timer, Mailbox<Object>) {
    let service = Service::new(0);
    let (timer, mailbox) = (service.remote().timer(), service.remote().mailbox(places));
    (service, timer, mailbox)
}

/// Starts a thread that has a handle of the timer, too.
fn on_thread<R: 'static>(timer: &Timer, function: impl FnOnce(Timer) -> R + 'static) -> JoinHandle<R> {
    let timer = timer.clone();
    thread::spawn(move || function(timer))
}

/// Runs the service at a time. Returns how many timers have fired, and how many were revoked.
fn run(service: &mut Service, now: u64) -> (usize, usize) {
    let (mut fired, mut revoked) = (0, 0);
    turn();
    let progress = service.run(now, Limit::NONE, |_, event| {
        let cause = event.cause();
        let object = event.into_value().expect("not periodic");
        match cause {
            Cause::Expired => {
                assert!(object.deadline() <= now, "{EARLY}");
                fired += 1;
            }
            Cause::Revoked => {
                object.deadline();
                revoked += 1;
            }
        }
    });
    assert!(progress.is_done());
    (fired, revoked)
}

/// Runs the service at a time, without a turn before. Returns how many timers have fired.
fn fires(service: &mut Service, now: u64) -> usize {
    let progress = service.run(now, Limit::NONE, |_, _| {});
    assert!(progress.is_done());
    progress.expired()
}

/// Cancels the timer. Returns 1 and reads the value if this call cancelled it, otherwise 0.
fn cancel(timer: &Timer) -> usize {
    turn();
    match timer.cancel() {
        Outcome::Cancelled(object) => {
            object.deadline();
            1
        }
        _ => 0,
    }
}

/// Revokes the timer. Returns 1 if this call ended it, otherwise 0.
fn revoke(timer: &Timer) -> usize {
    turn();
    usize::from(timer.revoke().is_cancelled())
}

fn reset(mailbox: &mut Mailbox<Object>, timer: &Timer, deadline: u64) -> bool {
    turn();
    mailbox.reset(timer, deadline).is_ok()
}

/// As `add`, with a beat at each time from the deadline on.
fn add_periodic(mailbox: &mut Mailbox<Object>, timer: &Timer, deadline: u64) -> usize {
    turn();
    let schedule = Schedule::at(deadline).every(NonZeroU64::MIN);
    usize::from(mailbox.add(timer, schedule, Object::new(deadline)).is_ok())
}

fn add(mailbox: &mut Mailbox<Object>, timer: &Timer, deadline: u64) -> usize {
    turn();
    usize::from(mailbox.add(timer, deadline, Object::new(deadline)).is_ok())
}

/// A value that two threads write in turn.
struct Watched(Arc<Object>);

// SAFETY: the models check that the writes are ordered.
unsafe impl Send for Watched {}

impl Watched {
    fn write(&self) {
        // SAFETY: the models check that the writes are ordered.
        self.0 .0.with_mut(|place| unsafe { *place += 1 });
    }
}
