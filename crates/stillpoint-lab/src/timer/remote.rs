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
use super::{DROP_IN, HTIMER, Plan, SPAN, WHEEL};

const TIMERS: usize = 10_000;
/// The least delay, in cycles, of timers that must not fire.
const FAR: u64 = 1 << 50;
/// What a round adds to the time of the target's wheel: more than any delay, so that all timers fire.
const ROUND: u64 = 2 * SPAN;
/// Timers of a burst.
const BURSTS: [usize; 2] = [1, 32];

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let [source_cpu, target_cpu, ..] = plan.cpus[..] else { return Ok(Vec::new()) };
    let cpus = [source_cpu, target_cpu];
    let mut rows = Vec::new();
    let mut measure = |name: &str, burst: usize, measure: &dyn Fn() -> Rounds<Figures>| {
        if !interrupt::requested() {
            let row = Row::new("timer", "remote", name).with("timers", TIMERS).with("burst", burst);
            rows.push(with_quartiles(row.with("rounds", plan.rounds), measure()));
        }
    };
    let has = |name: &str| plan.contenders.iter().any(|of| of == name);
    for burst in BURSTS.into_iter().filter(|_| has(WHEEL)) {
        measure(WHEEL, burst, &|| between_wheels(plan, cpus, burst));
    }
    for burst in BURSTS.into_iter().filter(|_| has(HTIMER)) {
        measure(HTIMER, burst, &|| beside_htimer(plan, cpus, burst));
    }
    for name in ["dpdk/rte_timer", DROP_IN].into_iter().filter(|name| has(name)) {
        measure(name, 1, &|| beside_rte_timer(plan, cpus, name == DROP_IN));
    }
    // This thread was the target of rte_timer, because the target's list is that of the thread that has initialised
    // DPDK.
    cpus::pin(source_cpu)?;
    Ok(rows)
}

/// The figures of one side in each round, or why a round does not count.
type Side = Vec<Result<Figures, String>>;

/// Runs the source and the target, each on its CPU, and puts their figures of each round together. The first round does not
/// count: caches and branch predictors are cold in it.
fn on_two_threads(
    cpus: [usize; 2],
    source: impl FnOnce() -> Side + Send,
    target: impl FnOnce() -> Side + Send,
) -> Rounds<Figures> {
    let (source, target) = std::thread::scope(|scope| {
        // A side that cannot be pinned has all its turns: the other one waits for it.
        let source = scope.spawn(move || (cpus::pin(cpus[0]), source()));
        let target = scope.spawn(move || (cpus::pin(cpus[1]), target()));
        (source.join(), target.join())
    });
    let (source_pinned, source) = source.map_err(|_| "the source panicked")?;
    let (target_pinned, target) = target.map_err(|_| "the target panicked")?;
    source_pinned.and(target_pinned)?;
    let both = |(source, target): (Result<Figures, _>, Result<Figures, _>)| {
        Ok(source?.into_iter().chain(target?).collect())
    };
    source.into_iter().zip(target).skip(1).map(both).collect()
}

/// Random delays, and the order of the timers.
fn work(plan: &Plan, least: u64) -> (Vec<u64>, Vec<u32>) {
    let mut random = Random::new(plan.seed);
    ((0..TIMERS).map(|_| least + random.draw() % SPAN).collect(), (0..TIMERS as u32).collect())
}

fn between_wheels(plan: &Plan, cpus: [usize; 2], burst: usize) -> Rounds<Figures> {
    let (deadlines, _) = work(plan, 1);
    let mut service = TimerService::with_capacity(0, 2 * TIMERS);
    let mut mailbox = service.remote().mailbox(TIMERS);
    let (turn, remote) = (Barrier::new(2), service.remote());
    let source = || {
        let timers: Vec<_> = (0..TIMERS).map(|_| remote.timer()).collect();
        let mut deadlines = deadlines.clone();
        let round = |_| {
            let figures = at_source(&mut mailbox, &timers, &deadlines, burst, &turn);
            // The target's time at the begin of the next round.
            deadlines.iter_mut().for_each(|deadline| *deadline += ROUND);
            figures
        };
        (0..=plan.rounds).map(round).collect()
    };
    let target = || (0..=plan.rounds).map(|_| at_target(&mut service, &deadlines, &turn)).collect();
    on_two_threads(cpus, source, target)
}

/// Works with what was made, or says again why it was not.
fn with<T, R>(made: &mut Result<T, String>, work: impl FnOnce(&mut T) -> R) -> Result<R, String> {
    made.as_mut().map(work).map_err(|error| error.clone())
}

/// The same with `htimer.h`, whose results come back to the source.
fn beside_htimer(plan: &Plan, cpus: [usize; 2], burst: usize) -> Rounds<Figures> {
    let (delays, order) = work(plan, 1);
    let each = TIMERS as f64;
    let turn = Barrier::new(2);
    let address = Mutex::new(None);
    let source = || {
        let made = HtimerSource::new(TIMERS);
        let bracket = Bracket::new();
        turn.wait(); // the target has said its address
        let address = *address.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = made.and_then(|source| Ok((source, address.ok_or("there is no target")?)));
        // All rounds have the same turns, even after an error.
        let round = |_| {
            let asked =
                with(&mut made, |(source, address)| bracket.time(|| source.ask(*address, &delays, burst)));
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
        (0..=plan.rounds).map(round).collect()
    };
    let target = || {
        let mut made = HtimerTarget::new(TIMERS);
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
        (0..=plan.rounds).map(round).collect()
    };
    on_two_threads(cpus, source, target)
}

/// Another thread arms and stops timers of the calling thread. A tick is a cycle, and no timer becomes due.
fn beside_rte_timer(plan: &Plan, [source_cpu, target_cpu]: [usize; 2], drop_in: bool) -> Rounds<Figures> {
    let (delays, order) = work(plan, FAR);
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

fn at_target(service: &mut TimerService<u64>, deadlines: &[u64], turn: &Barrier) -> Result<Figures, String> {
    let bracket = Bracket::new();
    let each = deadlines.len() as f64;
    // First adds the same number of timers as its own, to measure what the wheel itself costs. The source adds its
    // timers meanwhile.
    let now = service.now();
    let mut keys = Vec::with_capacity(deadlines.len());
    let (own, ()) = bracket.time(|| {
        keys.extend(deadlines.iter().map_while(|deadline| service.add(now + deadline, 1).ok()));
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
    let progress = service.run(now + ROUND, Limit::NONE, |_, event| {
        fired += event.into_value().unwrap_or(0);
    });
    debug_assert!(progress.is_done());
    turn.wait();
    if fired != TIMERS as u64 {
        return Err(format!("{fired} of {TIMERS} timers have fired"));
    }
    Ok(Figures::from([
        ("remote_target_cycles", (taking_in - own) / each),
        ("remote_target_whole_cycles", taking_in / each),
        ("remote_unlink_cycles", taking_out / each),
    ]))
}
