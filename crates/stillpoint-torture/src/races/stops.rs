//! The race for the stop: a background reclaimer is about to sleep while another thread stops it.
//!
//! If the reclaimer misses the stop, it sleeps for ever.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, RcuCell};

use super::Runs;
use crate::actor::{is_over, join};
use crate::arena::{Context, Maker};
use crate::world::PATIENCE;

/// The longest time before a stop, as powers of two of turns of a spinning loop: about as long as a thread takes to wake.
const LONGEST_SPIN: std::ops::RangeInclusive<u32> = 4..=10;

/// Starts and stops one reclaimer after the other.
pub(super) fn run(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let mut maker = Maker::new(context, 0);
    let cell = RcuCell::empty_in(&domain);
    let (handles, running) = mpsc::sync_channel(0);
    let (ended, is_last) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + duration;
    let mut runs = Runs::default();
    thread::scope(|scope| {
        let reclaimer = scope.spawn(|| {
            // Moved in, so that the other side notices the end.
            let handles = handles;
            // Relaxed: a flag; the thread is joined.
            while !is_last.load(Ordering::Relaxed) {
                let mut background = domain.background();
                if handles.send(background.retire_handle()).is_err() {
                    break;
                }
                background.run();
                // Release: pairs with the acquire below.
                ended.fetch_add(1, Ordering::Release);
            }
        });
        while let Ok(handle) = running.recv() {
            runs.tries += 1;
            for _ in 0..rng.u32(0..3) {
                if let Some(old) = cell.swap(maker.make()) {
                    drop(handle.retire(old));
                }
            }
            let longest = 1 << rng.u32(LONGEST_SPIN);
            (0..rng.u32(0..longest)).for_each(|_| std::hint::spin_loop());
            // Relaxed: read by the reclaimer's thread after this stop has ended its run.
            is_last.store(Instant::now() >= end || is_over(context), Ordering::Relaxed);
            handle.stop();
            if !wait_for(&ended, runs.tries) {
                context.findings.add(|| "a background reclaimer did not end after its stop".to_owned());
                is_last.store(true, Ordering::Relaxed);
                handle.abandon();
                break;
            }
            runs.over += 1;
        }
        // Closes the channel: a later send fails.
        drop(running);
        join(context, reclaimer);
    });
    Ok(runs)
}

/// Waits until `number` runs have ended.
fn wait_for(ended: &AtomicU64, number: u64) -> bool {
    let mut deadline = None;
    // Acquire: pairs with the release in `run`.
    while ended.load(Ordering::Acquire) < number {
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}
