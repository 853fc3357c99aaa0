//! Connection timeouts for 100,000 sessions over two threads.
//!
//! One thread opens and closes sessions, and reports traffic. The other one owns the timers, and closes sessions that
//! were idle for too long. The thread that closes a session first gets it, and the other one learns that it came too
//! late.
//!
//! Run it with `cargo run --release --example timeouts`.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stillpoint::timer::shared::{ArmError, Outcome, Remote, TimerService};
use stillpoint::timer::{Clock, Limit};

const SESSIONS: usize = 100_000;
/// Out of eight sessions, those that are closed before their timeout.
const CLOSED: usize = 6;
const IDLE: Duration = Duration::from_millis(20);

/// A session, which ends when its peer closes it or when it was idle for too long.
#[derive(Debug)]
struct Session {
    number: usize,
}

/// Opens all sessions and closes most of them. Returns how many it closed, and how many had timed out before.
fn serve(remote: &Remote<Session>, clock: &Clock) -> (usize, usize) {
    let mut mailbox = remote.mailbox(4_096);
    let (mut closed, mut late) = (0, 0);
    let idle = clock.ticks_of(IDLE);
    let mut open = Vec::with_capacity(SESSIONS);
    for number in 0..SESSIONS {
        let timer = remote.timer();
        let mut session = Session { number };
        // The mailbox is bounded: if the other thread does not keep up, this one waits for it.
        while let Err(refused) = mailbox.add(&timer, clock.now() + idle, session) {
            assert!(matches!(refused, ArmError::Full(_)), "{refused}");
            session = refused.into_inner();
            thread::yield_now();
        }
        if number % 8 < CLOSED {
            open.push((number, timer));
        }
        // Peers close the older sessions, a few at a time.
        if open.len() > 1_000 {
            for (number, timer) in open.drain(..500) {
                close(number, timer.cancel(), &mut closed, &mut late);
            }
        }
    }
    for (number, timer) in open {
        close(number, timer.cancel(), &mut closed, &mut late);
    }
    (closed, late)
}

fn close(number: usize, outcome: Outcome<Session>, closed: &mut usize, late: &mut usize) {
    match outcome {
        // This thread owns the session now, and the other one never sees it again.
        Outcome::Cancelled(session) => {
            assert_eq!(session.number, number);
            *closed += 1;
        }
        // The other thread closes it, or has closed it.
        Outcome::Running | Outcome::Fired => *late += 1,
        Outcome::Gone => unreachable!("the service outlives the sessions, and each is closed once"),
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let clock = Clock::new();
    let mut service = TimerService::with_capacity(clock.now(), SESSIONS);
    let remote = service.remote();
    let done = AtomicBool::new(false);

    let (closed, late, timed_out) = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let closed = serve(&remote, &clock);
            // Release: pairs with the acquire below: the last messages have been sent.
            done.store(true, Ordering::Release);
            closed
        });
        let mut timed_out = 0;
        loop {
            // A thread that has panicked has not said so.
            let over = done.load(Ordering::Acquire) || server.is_finished();
            // Rounds are kept short, so that a network loop may run beside this.
            let progress = service.run(clock.now(), Limit::expiries(256), |_, event| {
                timed_out += usize::from(event.into_value().is_some());
            });
            if over && progress.is_done() && service.next_deadline().is_none() {
                break;
            }
            if progress.expired() == 0 {
                thread::yield_now();
            }
        }
        let (closed, late) = server.join().expect("it does not panic");
        (closed, late, timed_out)
    });

    println!("{SESSIONS} sessions: {closed} closed by their peers, {timed_out} for idleness, of these {late} as the peer closed");
    assert_eq!(closed + timed_out, SESSIONS);
    assert_eq!(closed + late, SESSIONS / 8 * CLOSED);
    Ok(())
}
