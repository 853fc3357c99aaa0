//! Store buffering: a thread announces and looks, with nothing in between but what keeps the compiler from moving the
//! two; another one closes, fences by signals, and looks. One of them has to see the other.

use std::sync::atomic::{compiler_fence, fence, AtomicU32, Ordering};
use std::thread;

use stillpoint::multicast::signals;

use crate::child::in_child;
use crate::ways;

const ROUNDS: u32 = 20_000;

/// Lines of their own.
#[repr(align(128))]
#[derive(Default)]
struct Word(AtomicU32);

impl Word {
    fn set(&self, value: u32) {
        // Relaxed, here and below: that nothing else orders them is the point.
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait_for(&self, value: u32) {
        let mut looks = 0u32;
        while self.0.load(Ordering::Acquire) != value {
            looks += 1;
            if looks % 1024 == 0 {
                thread::yield_now();
            }
        }
    }
}

/// Counts the rounds in which neither saw the other. `close` is the fence of the one that closes.
fn violations(close: impl Fn(u32)) -> u32 {
    let (announced, closed) = (Word::default(), Word::default());
    let (turn, done, saw) = (Word::default(), Word::default(), Word::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            let _member = signals::join().expect("nobody handles the signal");
            for round in 1..=ROUNDS {
                turn.wait_for(round);
                announced.set(round);
                compiler_fence(Ordering::SeqCst);
                saw.set(closed.get());
                done.0.store(round, Ordering::Release);
            }
        });
        let mut violations = 0;
        for round in 1..=ROUNDS {
            turn.0.store(round, Ordering::Release);
            closed.set(round);
            close(round);
            let announced = announced.get();
            done.wait_for(round);
            violations += u32::from(announced != round && saw.get() != round);
        }
        violations
    })
}

#[test]
fn a_fence_by_signals_orders_those_who_do_not_fence() {
    in_child("litmus::a_fence_by_signals_orders_those_who_do_not_fence", || {
        let fenced = violations(|round| {
            let (strategy, acknowledgement, helps) = ways()[round as usize % ways().len()];
            let multicast = signals::multicast().expect("it has been started");
            let multicast = multicast.strategy(strategy).acknowledgement(acknowledgement).helping(helps);
            multicast.fence().expect("nobody blocks the signal");
        });
        // How often the processor does it without: told, and not demanded, as it depends on the machine.
        let one_sided = violations(|_| fence(Ordering::SeqCst));
        println!("{ROUNDS} rounds: {fenced} violations, {one_sided} with a fence on one side alone");
        assert_eq!(fenced, 0);
    });
}
