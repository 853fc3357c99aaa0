//! The threads that a barrier has to reach.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use stillpoint_harness::gate::Gate;
use stillpoint_multicast::signals::{self, SignalMember};

use super::State;

/// Large enough for a signal handler, and small enough for hundreds of threads.
const STACK: usize = 256 * 1024;

/// Calls `body` while `threads` threads are registered.
pub(super) fn with<R>(
    threads: usize,
    state: State,
    body: impl FnOnce() -> Result<R, String>,
) -> Result<R, String> {
    let (gate, done) = (Gate::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let live = || {
            let member: Result<SignalMember, _> = signals::join();
            let Ok(_member) = member else { return gate.fail() };
            gate.pass();
            // Relaxed: a flag that orders nothing.
            while !done.load(Ordering::Relaxed) {
                match state {
                    State::Paused => thread::park(),
                    State::Spinning => std::hint::spin_loop(),
                }
            }
        };
        let started: Result<Vec<ScopedJoinHandle<'_, ()>>, _> = (0..threads)
            .map(|_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, live))
            .collect();
        let answer = match &started {
            Ok(_) if gate.gathered(threads) => {
                gate.open();
                body()
            }
            Ok(_) => Err("cannot register a thread for signals".to_owned()),
            Err(error) => Err(format!("cannot start a thread: {error}")),
        };
        done.store(true, Ordering::Relaxed);
        gate.open();
        started.into_iter().flatten().for_each(|thread| thread.thread().unpark());
        answer
    })
}
