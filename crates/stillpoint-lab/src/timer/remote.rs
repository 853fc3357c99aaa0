//! Two threads, one of which (the source) adds to the wheel of the other (the target). They take turns, so that the
//! cost of each is measured separately. For comparison, `rte_timer`, where the source does all of the work under the
//! lock of the target's list.

use std::sync::{Barrier, Mutex, PoisonError};

use stillpoint::timer::Limit;
use stillpoint::timer::shared::{Mailbox, SharedTimer, TimerService};
use stillpoint_harness::experiment::rounds::Rounds;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::random::Random;
use stillpoint_peers::timer::{HtimerSource, HtimerTarget, RemoteRteTimer, RemoteSource};

use super::cycles::Bracket;
use super::measure::{Figures, with_quartiles};
use super::{DROP_IN, HTIMER, Plan, SPAN};

const TIMERS: usize = 10_000;
/// The least delay, in cycles, of timers that must not fire.
const FAR: u64 = 1 << 50;
/// Timers of a burst.
const BURSTS: [usize; 2] = [1, 32];

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let (Some(&source_cpu), Some(&target_cpu)) = (plan.cpus.first(), plan.cpus.get(1)) else {
        return Ok(Vec::new());
    };
    let mut rows = Vec::new();
    for burst in BURSTS {
        if interrupt::requested() {
            break;
        }
        let mut random = Random::new(plan.seed);
        let deadlines: Vec<u64> = (0..TIMERS).map(|_| 1 + random.draw() % SPAN).collect();
        let mut service = TimerService::with_capacity(0, 2 * TIMERS);
        let mut mailbox = service.remote().mailbox(TIMERS);
        let turn = Barrier::new(2);
        let remote = service.remote();
        let (source, target) = std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                let pinned = cpus::pin(source_cpu);
                let timers: Vec<_> = (0..TIMERS).map(|_| remote.timer()).collect();
                // The first round does not count: caches and branch predictors are cold in it.
                let round = |_| at_source(&mut mailbox, &timers, &deadlines, burst, &turn);
                // All rounds run, even after an error, because the target waits for the source in each of them.
                let rounds: Vec<Result<Figures, String>> = (0..=plan.rounds).map(round).collect();
                pinned.and_then(|()| rounds.into_iter().collect::<Rounds<Figures>>())
            });
            let target = scope.spawn(|| {
                let pinned = cpus::pin(target_cpu);
                let round = |_| at_target(&mut service, &deadlines, &turn);
                let rounds: Vec<Figures> = (0..=plan.rounds).map(round).collect();
                pinned.map(|()| rounds)
            });
            (source.join(), target.join())
        });
        let source = source.unwrap_or_else(|_| Err("the source panicked".into()));
        let target = target.unwrap_or_else(|_| Err("the target panicked".into()));
        let both = |(source, mut target): (Figures, Figures)| match target.remove("fired") {
            Some(fired) if fired != TIMERS as f64 => Err(format!("{fired} of {TIMERS} timers have fired")),
            _ => Ok(source.into_iter().chain(target).collect()),
        };
        let rounds = source.and_then(|source| source.into_iter().zip(target?).skip(1).map(both).collect());
        let row = Row::new("timer", "remote", "stillpoint/wheel")
            .with("timers", TIMERS)
            .with("burst", burst)
            .with("rounds", plan.rounds);
        rows.push(with_quartiles(row, rounds));
    }
    if plan.contenders.iter().any(|of| of == HTIMER) {
        for burst in BURSTS {
            if interrupt::requested() {
                break;
            }
            let row = Row::new("timer", "remote", HTIMER)
                .with("timers", TIMERS)
                .with("burst", burst)
                .with("rounds", plan.rounds);
            rows.push(with_quartiles(row, beside_htimer(plan, source_cpu, target_cpu, burst)));
        }
    }
    for name in ["dpdk/rte_timer", DROP_IN] {
        if plan.contenders.iter().any(|of| of == name) && !interrupt::requested() {
            let row = Row::new("timer", "remote", name)
                .with("timers", TIMERS)
                .with("burst", 1)
                .with("rounds", plan.rounds);
            rows.push(with_quartiles(row, beside_rte_timer(plan, source_cpu, target_cpu, name == DROP_IN)));
        }
    }
    // This thread was the target of rte_timer, because the target's list is that of the thread that has initialised
    // DPDK.
    cpus::pin(source_cpu)?;
    Ok(rows)
}

/// Works with what was made, or says again why it was not.
fn with<T, R>(made: &mut Result<T, String>, work: impl FnOnce(&mut T) -> R) -> Result<R, String> {
    made.as_mut().map(work).map_err(|error| error.clone())
}

/// The same with `htimer.h`, whose results come back to the source.
fn beside_htimer(plan: &Plan, source_cpu: usize, target_cpu: usize, burst: usize) -> Rounds<Figures> {
    let mut random = Random::new(plan.seed);
    let delays: Vec<u64> = (0..TIMERS).map(|_| 1 + random.draw() % SPAN).collect();
    let order: Vec<u32> = (0..TIMERS as u32).collect();
    let each = TIMERS as f64;
    let turn = Barrier::new(2);
    let address = Mutex::new(None);
    let (source, target) = std::thread::scope(|scope| {
        let source = scope.spawn(|| {
            let made = cpus::pin(source_cpu).and_then(|()| HtimerSource::new(TIMERS));
            let bracket = Bracket::new();
            turn.wait(); // the target has said its address
            let address = *address.lock().unwrap_or_else(PoisonError::into_inner);
            let mut made = made.and_then(|source| Ok((source, address.ok_or("there is no target")?)));
            // All rounds have the same turns, even after an error.
            let round = |_| {
                let asked = with(&mut made, |(source, address)| {
                    bracket.time(|| source.ask(*address, &delays, burst))
                });
                turn.wait(); // the target takes the timers in
                turn.wait();
                let results = with(&mut made, |(source, _)| bracket.time(|| source.take_results()));
                let cancelling = with(&mut made, |(source, _)| bracket.time(|| source.ask_to_cancel()));
                turn.wait(); // the target takes them out
                turn.wait();
                let (added, cancelled) = with(&mut made, |(source, _)| {
                    source.take_results();
                    source.told()
                })?;
                let ((add, asked), (results, _), (cancel, gone)) = (asked?, results?, cancelling?);
                if [asked, gone, added, cancelled] != [TIMERS; 4] {
                    return Err(format!(
                        "{asked}, {gone} of {TIMERS} requests; {added} added, {cancelled} cancelled"
                    ));
                }
                Ok(Figures::from([
                    ("remote_source_cycles", add / each),
                    ("remote_result_cycles", results / each),
                    ("remote_cancel_cycles", cancel / each),
                ]))
            };
            (0..=plan.rounds).map(round).collect::<Vec<Result<Figures, String>>>()
        });
        let target = scope.spawn(|| {
            let mut made = cpus::pin(target_cpu).and_then(|()| HtimerTarget::new(TIMERS));
            *address.lock().unwrap_or_else(PoisonError::into_inner) =
                made.as_ref().ok().map(HtimerTarget::address);
            let bracket = Bracket::new();
            turn.wait();
            let round = |_| {
                // First as many timers of its own, to measure what the wheel itself costs.
                let own = with(&mut made, |target| {
                    let own = bracket.time(|| target.add(&delays)).0;
                    target.cancel(&order);
                    own
                });
                turn.wait();
                let taking_in = with(&mut made, |target| bracket.time(|| target.process()).0);
                turn.wait();
                turn.wait();
                let taking_out = with(&mut made, |target| bracket.time(|| target.process()).0);
                turn.wait();
                let (own, taking_in, taking_out) = (own?, taking_in?, taking_out?);
                Ok(Figures::from([
                    ("remote_target_cycles", (taking_in - own) / each),
                    ("remote_target_whole_cycles", taking_in / each),
                    ("remote_unlink_cycles", taking_out / each),
                ]))
            };
            (0..=plan.rounds).map(round).collect::<Vec<Result<Figures, String>>>()
        });
        (source.join(), target.join())
    });
    let source = source.map_err(|_| "the source panicked")?;
    let target = target.map_err(|_| "the target panicked")?;
    // The first round does not count: caches and branch predictors are cold in it.
    let both = |(source, target): (Result<Figures, String>, Result<Figures, String>)| {
        Ok(source?.into_iter().chain(target?).collect())
    };
    source.into_iter().zip(target).skip(1).map(both).collect()
}

/// Another thread arms and stops timers of the calling thread. A tick is a cycle, and no timer becomes due.
fn beside_rte_timer(plan: &Plan, source_cpu: usize, target_cpu: usize, drop_in: bool) -> Rounds<Figures> {
    let mut random = Random::new(plan.seed);
    let delays: Vec<u64> = (0..TIMERS).map(|_| FAR + random.draw() % SPAN).collect();
    let order: Vec<u32> = (0..TIMERS as u32).collect();
    cpus::pin(target_cpu)?;
    let mut timers = RemoteRteTimer::new(TIMERS, drop_in)?;
    let bracket = Bracket::new();
    let each = TIMERS as f64;
    let by_source = |timers: &RemoteRteTimer, work: &(dyn Fn(&RemoteSource<'_>) -> usize + Sync)| {
        let source = std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                let source = timers.source();
                cpus::pin(source_cpu).map(|()| bracket.time(|| work(&source)))
            });
            source.join()
        });
        match source.unwrap_or_else(|_| Err("the source panicked".into()))? {
            (cycles, TIMERS) => Ok(cycles / each),
            (_, done) => Err(format!("{done} of {TIMERS} calls succeeded")),
        }
    };
    // The first round does not count: caches and branch predictors are cold in it.
    let rounds = (0..=plan.rounds).map(|_| {
        let add = by_source(&timers, &|source| source.add(&delays))?;
        let (taking_in, fired) = bracket.time(|| timers.manage());
        let cancel = by_source(&timers, &|source| source.cancel(&order))?;
        let (taking_out, more) = bracket.time(|| timers.manage());
        if fired + more > 0 {
            return Err(format!("{} timers have fired early", fired + more));
        }
        Ok(Figures::from([
            ("remote_source_cycles", add),
            ("remote_target_whole_cycles", taking_in / each),
            ("remote_cancel_cycles", cancel),
            ("remote_unlink_cycles", taking_out / each),
        ]))
    });
    Ok(rounds.collect::<Result<Vec<_>, _>>()?.into_iter().skip(1).collect())
}

/// Adds, cancels, and again adds all timers. Errors come from the mailbox. The number of turns is the same in any
/// case.
fn at_source(
    mailbox: &mut Mailbox<u64>,
    timers: &[SharedTimer<u64>],
    deadlines: &[u64],
    burst: usize,
    turn: &Barrier,
) -> Result<Figures, String> {
    let bracket = Bracket::new();
    let mut add = || {
        bracket.time(|| {
            for (timers, deadlines) in timers.chunks(burst).zip(deadlines.chunks(burst)) {
                let mut together = mailbox.burst();
                for (timer, &deadline) in timers.iter().zip(deadlines) {
                    together.add(timer, deadline, 1).map_err(|refused| refused.to_string())?;
                }
            }
            Ok::<(), String>(())
        })
    };
    let (first, added) = add();
    turn.wait(); // the target takes the timers in
    turn.wait();
    let (cancelling, cancelled) =
        bracket.time(|| timers.iter().filter(|timer| timer.cancel().is_cancelled()).count());
    turn.wait(); // the target takes the cancelled timers out
    turn.wait();
    let (_, again) = add();
    turn.wait(); // the target fires the timers
    turn.wait();
    added.and(again)?;
    if cancelled != timers.len() {
        return Err(format!("{cancelled} of {} timers were cancelled", timers.len()));
    }
    let each = timers.len() as f64;
    Ok(Figures::from([("remote_source_cycles", first / each), ("remote_cancel_cycles", cancelling / each)]))
}

fn at_target(service: &mut TimerService<u64>, deadlines: &[u64], turn: &Barrier) -> Figures {
    let bracket = Bracket::new();
    let each = deadlines.len() as f64;
    // First adds the same number of timers as its own, to measure what the wheel itself costs. The source adds its
    // timers meanwhile.
    let now = service.now();
    let (own, keys) = bracket.time(|| {
        let keys = deadlines.iter().map(|deadline| service.add(now + deadline, 1));
        keys.collect::<Result<Vec<_>, _>>().unwrap_or_default()
    });
    keys.into_iter().for_each(|key| _ = service.cancel(key));
    turn.wait();
    let (taking_in, _) = bracket.time(|| service.process(usize::MAX, |_, _| {}));
    turn.wait();
    turn.wait();
    let (taking_out, _) = bracket.time(|| service.process(usize::MAX, |_, _| {}));
    turn.wait();
    turn.wait();
    let mut fired = 0;
    let progress = service.run(service.now() + 2 * SPAN, Limit::NONE, |_, event| {
        fired += event.into_value().unwrap_or(0);
    });
    debug_assert!(progress.is_done());
    turn.wait();
    Figures::from([
        ("remote_target_cycles", (taking_in - own) / each),
        ("remote_target_whole_cycles", taking_in / each),
        ("remote_unlink_cycles", taking_out / each),
        ("fired", fired as f64),
    ])
}
