//! Readers that are parked in a signal handler for seconds, or for a minute in a long run, while the other parts run.

mod ward;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint_harness::output::say;

use self::ward::{Sight, Ward};
use crate::actor::{is_over, join};
use crate::arena::{Context, Maker};
use crate::counts::Counts;
use crate::findings::Findings;
use crate::hold::Kind;
use crate::times::{self, Times};

/// The time between two looks. A look takes a millisecond or two, so the other parts are hardly disturbed.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs beside all other parts.
pub(crate) struct Companion {
    /// A separate context, because the other parts count their objects between parts.
    context: &'static Context,
    counts: Counts<Sight>,
    /// How long the readers were parked.
    stays: Times,
    time: Duration,
}

impl Companion {
    pub(crate) fn new(findings: &'static Findings) -> Self {
        Self {
            context: Context::leak(1, findings),
            counts: Counts::default(),
            stays: Times::default(),
            time: Duration::ZERO,
        }
    }

    /// Parks a reader of each kind, checks their domains until `stop` is set, and releases the readers.
    pub(crate) fn run(&mut self, modes: &[Mode], stop: &AtomicBool, rng: &mut Rng) -> Result<(), String> {
        let (context, begun) = (self.context, Instant::now());
        let mut maker = Maker::new(context, 0);
        let mut wards = Vec::new();
        let mut backgrounds = Vec::new();
        for kind in Kind::ALL {
            let (ward, background) =
                Ward::new(context, kind, modes[rng.usize(0..modes.len())], &mut maker, rng)?;
            wards.push(ward);
            backgrounds.push(background);
        }
        thread::scope(|scope| {
            let readers: Vec<_> = wards.iter().map(|ward| scope.spawn(|| ward.read())).collect();
            let backgrounds: Vec<_> =
                backgrounds.into_iter().map(|mut background| scope.spawn(move || background.run())).collect();
            let mut watches: Vec<_> = wards.iter().filter_map(|ward| ward.park(&mut maker, rng)).collect();
            for ward in &wards {
                self.counts.add(match ward.kind() {
                    Kind::Protected => Sight::Protected,
                    Kind::Guard => Sight::Guards,
                    Kind::Qsbr => Sight::Sections,
                });
            }
            let parked = Instant::now();
            loop {
                watches.iter_mut().for_each(|watch| watch.look(&mut maker, &mut self.counts));
                // Relaxed: a flag; the thread is joined.
                if stop.load(Ordering::Relaxed) || is_over(context) {
                    break;
                }
                thread::sleep(PERIOD);
            }
            let released: Vec<_> = watches.into_iter().map(|watch| watch.release()).collect();
            self.stays.add(parked.elapsed());
            wards.iter().for_each(Ward::stop);
            readers.into_iter().for_each(|reader| join(context, reader));
            released.into_iter().for_each(|released| released.drain(&mut self.counts));
            wards.iter().for_each(Ward::stop_background);
            backgrounds.into_iter().for_each(|background| join(context, background));
        });
        drop((wards, maker));
        context.audit();
        self.time += begun.elapsed();
        Ok(())
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        self.counts.missing(self.time).iter().map(|what| format!("parked: {what}")).collect()
    }

    pub(crate) fn show(&self) {
        say("Readers parked in a signal handler");
        self.counts.show();
        times::show(&[("parked", &self.stays), ("unlink to destructor", &self.context.delays())]);
    }
}
