//! One round: a contender, its readers in their sections, and its writer, for a short time.
//!
//! The writer's thread runs the round, as in `reclaim`. What is measured:
//!
//! - A **grace period** runs from the unlink of a probe, right before the call of the scheme, to the call of the probe's
//!   destructor. The probe is an object of the workload. There is one at a time, and at most about one in a millisecond.
//!   For a scheme that collects callbacks for a while (`call_rcu`), the probe would include this time. If such a scheme
//!   has a call that only waits for a grace period, a thread beside the writer makes that call, as often.
//! - **CPU time** is that of the scheme's writer side: the writer's calls of the scheme, the hidden worker, and the calls
//!   that wait for grace periods. What the scheme does on the readers' threads does not count, nor does the workload
//!   itself.
//! - **Resident** memory is the growth of the process's resident memory since before the store was filled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stillpoint_harness::experiment::threads::{
    Account, StopOnDrop, as_writer, prepare_writer_thread, thread_cpu_time,
};
use stillpoint_harness::stats::Distribution;
use stillpoint_peers::{Contender, Delays, ReadJob};

use crate::experiment::readers::{beside_readers, check, lookups};
use crate::preempt::plan::Setting;
use crate::preempt::policy;
use crate::preempt::writing::{Look, Writing, resident_bytes};

/// The shortest time between two calls that wait for a grace period.
const WAIT_INTERVAL: Duration = Duration::from_millis(1);

/// What to run. It travels to a child process as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) contender: String,
    /// Whether our readers fence themselves; otherwise they have the library's usual fences.
    pub(crate) symmetric: bool,
    pub(crate) setting: Setting,
    pub(crate) steps_per_us: f64,
    pub(crate) reader_cpus: Vec<usize>,
    pub(crate) writer_cpu: usize,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
}

/// The measurements of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) grace: Distribution,
    pub(crate) graces: usize,
    pub(crate) delay: Distribution,
    pub(crate) unlinked: usize,
    pub(crate) freed: usize,
    /// CPU time of the scheme's writer side, in seconds.
    pub(crate) scheme_cpu_s: f64,
    pub(crate) peak_pending_bytes: usize,
    pub(crate) live_bytes: usize,
    /// The most memory that was resident, and what was linked or pending at that time.
    pub(crate) peak_resident_bytes: usize,
    pub(crate) used_at_peak_bytes: usize,
    /// Resident memory after everything but the store was freed.
    pub(crate) end_resident_bytes: usize,
    pub(crate) sections_per_s: f64,
    pub(crate) changes_per_s: f64,
    /// CPU time of everything else on the CPUs of the round, over its time; 0 where it is not known.
    pub(crate) foreign_cpus: f64,
    /// How the round went, about every 10 ms.
    pub(crate) course: Vec<Moment>,
}

/// A moment of a round, with what happened since the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Since the first change.
    pub(crate) second: f64,
    /// The longest delay of the objects freed; `None` if none was, or if not all delays were kept.
    pub(crate) delay_us_max: Option<f64>,
    /// The most that was unlinked and not freed.
    pub(crate) pending_bytes: usize,
}

/// Runs a round on new threads; the error says why it does not count.
pub(crate) fn run(
    contender: &dyn Contender,
    round: &Round,
    delays: &'static Delays,
) -> Result<Outcome, String> {
    as_writer(round.writer_cpu, || write_and_read(contender, round, delays))
}

fn write_and_read(
    contender: &dyn Contender,
    round: &Round,
    delays: &'static Delays,
) -> Result<Outcome, String> {
    let usual = policy::of_this_thread()?;
    let work = round.setting.work(round.steps_per_us);
    let cpus = &round.reader_cpus;
    let read = |job: &ReadJob<'_>, ready: &dyn Fn()| {
        let outcome = contender.read(job, ready);
        policy::check_this_thread(&usual, cpus[job.index])
            .map_err(|why| format!("reader {}: {why}", job.index))?;
        Ok(outcome)
    };
    let (written, outcomes) = beside_readers(cpus, round.seed, Some(&work), read, |go| {
        let mut writing = Writing::new(contender, round, delays);
        writing.fill();
        let account = Account::open(cpus, round.writer_cpu);
        let (worker_before, begin) = (writing.writer.worker_cpu_time(), Instant::now());
        let ready = go();
        let waiter_cpu = beside_waiter(contender, round, delays, || {
            if ready {
                writing.write(begin);
                writing.finish();
            }
        });
        let elapsed = begin.elapsed().as_secs_f64();
        let worker_cpu = writing.writer.worker_cpu_time().saturating_sub(worker_before);
        (writing, waiter_cpu, worker_cpu, account.close().foreign_cpus, elapsed)
    });
    let (mut writing, waiter_cpu, worker_cpu, foreign_cpus, elapsed) = written;
    writing.writer.drain();
    let end_resident = resident_bytes();

    let outcomes = outcomes?;
    policy::check_all_threads(&usual)?;
    let freed = delays.freed();
    check(&outcomes, writing.unlinked, freed)?;
    if lookups(&outcomes) == 0.0 {
        return Err("no reader ended a section".to_owned());
    }
    let (graces, delays) = (delays.take_graces(), delays.take());
    Ok(Outcome {
        grace: Distribution::of(&graces).ok_or("no grace period was measured")?,
        graces: graces.len(),
        delay: Distribution::of(&delays).ok_or("no object was unlinked")?,
        unlinked: writing.unlinked,
        freed,
        scheme_cpu_s: (writing.cpu + worker_cpu + waiter_cpu?).as_secs_f64(),
        peak_pending_bytes: writing.peak_pending_bytes,
        live_bytes: writing.store.live_bytes(),
        peak_resident_bytes: writing.peak_resident_bytes,
        used_at_peak_bytes: writing.used_at_peak_bytes,
        end_resident_bytes: end_resident.saturating_sub(writing.resident_before),
        sections_per_s: lookups(&outcomes) / elapsed,
        changes_per_s: writing.changes as f64 / writing.written.as_secs_f64(),
        foreign_cpus,
        course: course(&writing.looks, &delays, freed),
    })
}

/// The moments of a round, from the delays of the `freed` objects in the order in which they were freed.
fn course(looks: &[Look], delays: &[u64], freed: usize) -> Vec<Moment> {
    let mut before = 0;
    let moment = |look: &Look| {
        // A sparse record does not say when its delays occurred.
        let since = delays.get(before..look.freed).filter(|_| delays.len() == freed);
        before = look.freed;
        Moment {
            second: look.at.as_secs_f64(),
            delay_us_max: since.and_then(|since| since.iter().max()).map(|&most| most as f64 / 1e3),
            pending_bytes: look.pending_bytes,
        }
    };
    looks.iter().map(moment).collect()
}

/// Runs `write`, and beside it a thread that waits for grace periods, if the scheme has a call for that. Returns the CPU
/// time of those calls.
fn beside_waiter(
    contender: &dyn Contender,
    round: &Round,
    delays: &Delays,
    write: impl FnOnce(),
) -> Result<Duration, String> {
    if !contender.has_synchronize() {
        write();
        return Ok(Duration::ZERO);
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_graces(contender, round.writer_cpu, delays, &stop));
        let ending = StopOnDrop(&stop);
        write();
        drop(ending);
        waiter.join().unwrap_or_else(|_| Err("the thread that waits for grace periods panicked".to_owned()))
    })
}

fn wait_for_graces(
    contender: &dyn Contender,
    cpu: usize,
    delays: &Delays,
    stop: &AtomicBool,
) -> Result<Duration, String> {
    prepare_writer_thread(cpu)?;
    let mut cpu = Duration::ZERO;
    loop {
        let (began, before) = (Instant::now(), thread_cpu_time());
        contender.synchronize();
        cpu += thread_cpu_time() - before;
        delays.record_grace(began.elapsed().as_nanos() as u64);
        // Relaxed: the flag carries no data.
        if stop.load(Ordering::Relaxed) {
            return Ok(cpu);
        }
        thread::sleep(WAIT_INTERVAL.saturating_sub(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::experiment::Inside;
    use crate::experiment::readers::defective::{Defect, Defective};
    use crate::preempt::workload::Workload;
    use stillpoint_harness::machine::cpus;

    fn run_with(defect: Defect) -> Result<Outcome, String> {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(100_000)));
        let cpu = cpus::allowed()[0];
        let workload = Workload::Memory;
        let contender = Defective::empty(workload.spec().slots, delays, defect);
        let round = Round {
            contender: String::new(),
            symmetric: false,
            setting: Setting { workload, section_us: 10.0, inside: Inside::Always },
            steps_per_us: 100.0,
            reader_cpus: vec![cpu; 2],
            writer_cpu: cpu,
            duration: Duration::from_millis(50),
            seed: 1,
        };
        run(&contender, &round, delays)
    }

    #[test]
    fn a_sound_round_counts() {
        let outcome = run_with(Defect::None).unwrap();
        assert!(outcome.unlinked > 0 && outcome.freed == outcome.unlinked, "{outcome:?}");
        assert_eq!(outcome.graces, 1, "a probe that is not freed stays the only one");
        assert!(outcome.grace.max >= 50_000.0, "it is freed only at the end: {outcome:?}");
        assert_eq!(outcome.peak_pending_bytes, outcome.unlinked * 256, "so was everything");
        assert_eq!(outcome.live_bytes, Workload::Memory.spec().slots * 256);
    }

    #[test]
    fn the_course_of_a_round_has_the_delays_of_what_was_freed_meanwhile() {
        let look = |ms, freed, pending_bytes| Look { at: Duration::from_millis(ms), freed, pending_bytes };
        let looks = [look(10, 2, 512), look(20, 2, 768), look(30, 3, 768)];
        let moment = |second, delay_us_max, pending_bytes| Moment { second, delay_us_max, pending_bytes };
        assert_eq!(
            course(&looks, &[7_000, 9_000, 21_000], 3),
            [moment(0.01, Some(9.0), 512), moment(0.02, None, 768), moment(0.03, Some(21.0), 768)]
        );
        let sparse = course(&looks, &[7_000, 21_000], 3);
        assert!(sparse.iter().all(|moment| moment.delay_us_max.is_none()), "{sparse:?}");

        let outcome = run_with(Defect::None).unwrap();
        assert!(outcome.course.len() > 3, "{outcome:?}");
        assert!(outcome.course.is_sorted_by_key(|moment| moment.second), "{outcome:?}");
        let most = outcome.course.iter().map(|moment| moment.pending_bytes).max();
        assert_eq!(most, Some(outcome.peak_pending_bytes), "nothing is freed before the end");
    }

    #[test]
    fn a_leak_voids_the_round() {
        let reason = run_with(Defect::Leaks).unwrap_err();
        assert!(reason.contains("objects were unlinked"), "{reason}");
    }

    #[test]
    fn an_object_that_changes_under_a_reader_voids_the_round() {
        for defect in [Defect::SeesFreedElements, Defect::ReusesAtOnce] {
            let reason = run_with(defect).unwrap_err();
            assert!(reason.contains("freed under the reader"), "{reason}");
        }
    }

    #[test]
    fn a_writer_that_panics_voids_the_round_and_nobody_waits_for_it() {
        for defect in [Defect::WriterPanicsAtOnce, Defect::WriterPanicsLater] {
            // Not joined: the readers of such a round would wait for ever.
            let (send, receive) = mpsc::channel();
            thread::spawn(move || _ = send.send(run_with(defect)));
            let outcome = receive.recv_timeout(Duration::from_secs(60));
            let reason =
                outcome.unwrap_or_else(|_| panic!("{defect:?}: the round does not end")).unwrap_err();
            assert!(reason.contains("the writer panicked"), "{reason}");
        }
    }

    #[test]
    fn a_reader_that_panics_voids_the_round_and_holds_nobody_up() {
        for defect in [Defect::ReaderPanicsAtOnce, Defect::ReaderPanicsLater] {
            let reason = run_with(defect).unwrap_err();
            assert!(reason.contains("panicked"), "{reason}");
        }
    }
}
