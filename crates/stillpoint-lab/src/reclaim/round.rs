//! One round: a contender, its readers and its writer, for a short time.
//!
//! The writer's thread runs the round. It starts the readers, lets them begin at the same time, writes on its
//! schedule, and ends when everything that it replaced is freed.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::experiment::threads::{Account, StopOnDrop, Used, as_writer, prepare_writer_thread};
use stillpoint_harness::interrupt;
use stillpoint_harness::random::Random;
use stillpoint_peers::{Contender, Delays, ReadJob, Work, Writer};

use crate::experiment::readers::{beside_readers, check, lookups};
use crate::reclaim::names::Policy;
use crate::reclaim::setting::Setting;

/// Deletes a second, unless another number is asked for.
pub(crate) const RATE: u32 = 5_000;
/// How long the writer does other work before each delete.
const WORK: Duration = Duration::from_micros(20);
/// How long the readers go on after the last delete, so that the delays of the last objects count in full.
const TAIL: Duration = Duration::from_millis(600);

/// What the slow reader does in each section.
const ASLEEP: Work = Work { inside: 0, sleep: Duration::from_millis(1), outside: 0 };

/// What to run.
pub(crate) struct Round<'a> {
    pub(crate) policy: Policy,
    pub(crate) setting: &'a Setting,
    /// One more reader, which sleeps in its sections: of which contender, and its number there.
    pub(crate) slow: Option<(&'a dyn Contender, usize)>,
    pub(crate) elements: usize,
    pub(crate) deletes_per_s: u32,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) delays: &'static Delays,
}

impl Round<'_> {
    /// From one delete to the next.
    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.deletes_per_s
    }
}

/// The measurements of a round.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Delays in nanoseconds.
    pub(crate) delays: Vec<u64>,
    pub(crate) deletes: usize,
    pub(crate) freed: usize,
    pub(crate) lookups_per_s: f64,
    pub(crate) peak_pending: usize,
    /// Heavy fences of the contender that counts them, a second.
    pub(crate) fences_per_s: Option<f64>,
    /// What the whole process and everything else used while the writer wrote.
    pub(crate) used: Used,
}

/// Runs a round on new threads; the error says why it does not count.
pub(crate) fn run(contender: &dyn Contender, round: &Round<'_>) -> Result<Outcome, String> {
    // Discard what an earlier void round left behind.
    drop(round.delays.take());
    as_writer(round.setting.writer_cpu, || write_and_read(contender, round))
}

fn write_and_read(contender: &dyn Contender, round: &Round<'_>) -> Result<Outcome, String> {
    let Setting { reader_cpus, writer_cpu, .. } = round.setting;
    let stop_background = AtomicBool::new(false);
    let mut cpus = reader_cpus.clone();
    cpus.extend(round.slow.map(|_| reader_cpus[0]));
    thread::scope(|scope| {
        let stop_reclaimer = StopOnDrop(&stop_background);
        let background = contender
            .needs_background()
            .then(|| scope.spawn(|| background(contender, *writer_cpu, &stop_background)));
        let read = |job: &ReadJob<'_>, ready: &dyn Fn()| match round.slow {
            Some((contender, index)) if job.index == reader_cpus.len() => {
                Ok(contender.read(&ReadJob { index, work: Some(&ASLEEP), ..*job }, ready))
            }
            _ => Ok(contender.read(job, ready)),
        };
        let (work, outcomes) = beside_readers(&cpus, round.seed, None, read, |go| {
            let mut writer = contender.writer();
            let fences = contender.heavy_fences();
            let (account, begin) = (Account::open(reader_cpus, *writer_cpu), Instant::now());
            let written = if go() { write(writer.as_mut(), round, begin) } else { Written::default() };
            let used = account.close();
            let written_s = begin.elapsed().as_secs_f64();
            let more = |(after, before): (u64, u64)| (after - before) as f64 / written_s;
            let fences = contender.heavy_fences().zip(fences).map(more);
            finish_delays(writer.as_mut(), round, written.deletes);
            (writer, written, used, fences, begin.elapsed().as_secs_f64())
        });
        let (mut writer, Written { deletes, peak_pending }, used, fences_per_s, elapsed) = work;
        writer.drain();
        drop(stop_reclaimer);
        if let Some(background) = background {
            background.join().map_err(|_| "the background reclaimer panicked".to_owned())??;
        }
        drop(writer);

        let (outcomes, freed) = (outcomes?, round.delays.freed());
        check(&outcomes, deletes, freed)?;
        Ok(Outcome {
            delays: round.delays.take(),
            deletes,
            freed,
            lookups_per_s: lookups(&outcomes) / elapsed,
            peak_pending,
            fences_per_s,
            used,
        })
    })
}

fn background(contender: &dyn Contender, cpu: usize, stop: &AtomicBool) -> Result<(), String> {
    let pinned = prepare_writer_thread(cpu);
    // Even if the thread cannot be pinned: the writer's drain waits for it.
    contender.background(stop);
    pinned
}

#[derive(Debug, Default)]
struct Written {
    deletes: usize,
    peak_pending: usize,
}

/// Deletes on schedule until the round's time is over. A writer that was held up catches up, so that every
/// contender has the same number of deletes to make.
fn write(writer: &mut dyn Writer, round: &Round<'_>, begin: Instant) -> Written {
    let end = begin + round.duration;
    let mut keys = Random::new(round.seed);
    let mut written = Written::default();
    let mut next = begin;
    // At least one delete, even if starting the threads took all of a very short round.
    loop {
        let work = Instant::now();
        while work.elapsed() < WORK {
            std::hint::spin_loop();
        }
        writer.replace(keys.draw() as usize & (round.elements - 1));
        written.deletes += 1;
        written.peak_pending = written.peak_pending.max(written.deletes.saturating_sub(round.delays.freed()));
        next += round.interval();
        wait(writer, round.policy, next.min(end));
        if Instant::now() >= end || interrupt::requested() {
            return written;
        }
    }
}

/// Goes on as between two deletes until everything is freed, or until a time limit.
fn finish_delays(writer: &mut dyn Writer, round: &Round<'_>, deletes: usize) {
    let end = Instant::now() + TAIL;
    while round.delays.freed() < deletes && Instant::now() < end && !interrupt::requested() {
        if round.policy == Policy::Delete {
            writer.poll();
        }
        wait(writer, round.policy, Instant::now() + round.interval());
    }
}

fn wait(writer: &mut dyn Writer, policy: Policy, until: Instant) {
    match policy {
        Policy::Poll => {
            while Instant::now() < until {
                writer.poll();
            }
        }
        Policy::Delete | Policy::Background => {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::readers::defective::{Defect, Defective};
    use stillpoint_harness::machine::cpus;
    use stillpoint_peers::{Element, ReadOutcome, Recipe};

    fn run_with(defect: Defect) -> Result<Outcome, String> {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(100)));
        run_over(&Defective::full(256, delays, defect), delays, 5)
    }

    fn run_over(
        contender: &dyn Contender,
        delays: &'static Delays,
        milliseconds: u64,
    ) -> Result<Outcome, String> {
        let cpu = cpus::allowed()[0];
        let setting =
            Setting { scenario: "spread", reader_cpus: vec![cpu; 2], writer_cpu: cpu, cores: 1, slow: None };
        let duration = Duration::from_millis(milliseconds);
        let (policy, setting, elements, deletes_per_s) = (Policy::Background, &setting, 256, RATE);
        run(
            contender,
            &Round { policy, setting, slow: None, elements, deletes_per_s, duration, seed: 1, delays },
        )
    }

    /// A sound contender whose writer does not do what it should.
    struct Broken<'a> {
        sound: &'a dyn Contender,
        /// What it does in place of replacing an element.
        replace: fn(&mut dyn Writer, usize, Recipe),
        recipe: Recipe,
    }

    impl Contender for Broken<'_> {
        fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
            self.sound.read(job, ready)
        }

        fn writer(&self) -> Box<dyn Writer + '_> {
            Box::new(BrokenWriter { of: self, sound: self.sound.writer() })
        }
    }

    struct BrokenWriter<'a> {
        of: &'a Broken<'a>,
        sound: Box<dyn Writer + 'a>,
    }

    impl Writer for BrokenWriter<'_> {
        fn replace(&mut self, index: usize) {
            (self.of.replace)(self.sound.as_mut(), index, self.of.recipe);
        }

        fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
            self.sound.publish(index, new);
        }

        fn poll(&mut self) {
            self.sound.poll();
        }

        fn drain(&mut self) {
            self.sound.drain();
        }
    }

    /// Tables are broken in two ways: nothing is freed, or readers find an element that looks freed.
    #[test]
    fn a_table_counts_and_a_broken_one_voids_the_round() {
        use stillpoint_peers::table::make_reclaiming;
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1000)));
        let recipe = Recipe::plain(delays);
        // DPDK is initialised once per process, elsewhere.
        let sound = make_reclaiming(|name| !name.starts_with("dpdk/"), 256, recipe, 2).unwrap();
        // On a busy machine, readers may not read at all in a short round: then a longer one follows.
        fn runs(
            contender: &dyn Contender,
            delays: &'static Delays,
        ) -> impl Iterator<Item = Result<Outcome, String>> {
            (0..10).map(move |doubled| run_over(contender, delays, 20 << doubled))
        }
        for (name, contender) in &sound {
            let outcome =
                runs(&**contender, delays).map(Result::unwrap).find(|outcome| outcome.lookups_per_s > 0.0);
            let outcome = outcome.expect("a reader reads within ten seconds");
            assert!(outcome.deletes > 0 && outcome.freed == outcome.deletes, "{name}");
        }
        let forget: fn(&mut dyn Writer, usize, Recipe) = |_, _, _| {};
        let link_freed: fn(&mut dyn Writer, usize, Recipe) = |writer, index, recipe| {
            let element = Box::new(recipe.element(index as u64));
            element.poison();
            writer.publish(index, Some(element));
        };
        for (replace, expected) in
            [(forget, "objects were unlinked and 0 freed"), (link_freed, "lookups found an")]
        {
            for (name, sound) in sound.iter().filter(|(name, _)| ["liburcu/qsbr", "papaya"].contains(name)) {
                let reason = runs(&Broken { sound: &**sound, replace, recipe }, delays)
                    .find_map(Result::err)
                    .expect("a broken contender voids its round");
                assert!(reason.contains(expected), "{name}: {reason}");
            }
        }
    }

    /// A writer whose first delete is held up until some others are overdue.
    struct HeldUp {
        begin: Instant,
        until: Instant,
        /// When each delete came.
        deletes: Vec<Duration>,
        /// The numbers of the deletes before which there was time to poll.
        waited: Vec<usize>,
    }

    impl Writer for HeldUp {
        fn replace(&mut self, _: usize) {
            self.deletes.push(self.begin.elapsed());
            while Instant::now() <= self.until {
                std::hint::spin_loop();
            }
        }

        fn publish(&mut self, _: usize, _: Option<Box<Element>>) {}

        fn poll(&mut self) {
            self.waited.push(self.deletes.len());
        }

        fn drain(&mut self) {}
    }

    /// However busy the machine is, no delete comes early, and after a delay the overdue deletes come at once.
    #[test]
    fn deletes_keep_the_pace_that_is_asked_for() {
        for (deletes_per_s, interval) in
            [(500, Duration::from_millis(2)), (2_000, Duration::from_micros(500))]
        {
            let delays: &'static Delays = Box::leak(Box::new(Delays::new(1)));
            let setting =
                Setting { scenario: "spread", reader_cpus: vec![], writer_cpu: 0, cores: 1, slow: None };
            // A busy machine may take most of a round away: then a longer one follows.
            let caught_up = (0..10).map(|doubled| 20 << doubled).any(|intervals| {
                let (policy, duration) = (Policy::Poll, intervals * interval);
                let round = Round {
                    policy,
                    setting: &setting,
                    slow: None,
                    elements: 1,
                    deletes_per_s,
                    duration,
                    seed: 1,
                    delays,
                };
                let begin = Instant::now();
                let until = begin + 5 * interval;
                let mut writer = HeldUp { begin, until, deletes: Vec::new(), waited: Vec::new() };
                let written = write(&mut writer, &round, begin);
                assert_eq!(written.deletes, writer.deletes.len());
                assert!(written.deletes <= intervals as usize, "{deletes_per_s}: {:?}", writer.deletes);
                for (nth, at) in writer.deletes.iter().enumerate() {
                    assert!(*at >= nth as u32 * interval, "{deletes_per_s}: the {nth}th came after {at:?}");
                }
                let overdue = |before: &usize| (1..=5).contains(before);
                assert!(!writer.waited.iter().any(overdue), "{deletes_per_s}: {:?}", writer.waited);
                written.deletes >= 6
            });
            assert!(caught_up, "{deletes_per_s}: overdue deletes were not made");
        }
    }

    #[test]
    fn a_sound_round_counts() {
        let outcome = run_with(Defect::None).unwrap();
        assert!(outcome.deletes > 0 && outcome.freed == outcome.deletes);
        assert_eq!(outcome.delays.len(), outcome.deletes);
        assert_eq!(outcome.peak_pending, outcome.deletes, "nothing was freed before the end");
    }

    #[test]
    fn a_leak_voids_the_round() {
        let reason = run_with(Defect::Leaks).unwrap_err();
        assert!(reason.contains("objects were unlinked"), "{reason}");
    }

    #[test]
    fn a_freed_element_under_a_reader_voids_the_round() {
        let reason = run_with(Defect::SeesFreedElements).unwrap_err();
        assert!(reason.contains("2 lookups"), "{reason}");
    }

    #[test]
    fn a_reader_that_panics_voids_the_round_and_holds_nobody_up() {
        for defect in [Defect::ReaderPanicsAtOnce, Defect::ReaderPanicsLater] {
            let reason = run_with(defect).unwrap_err();
            assert!(reason.contains("panicked"), "{reason}");
        }
    }
}
