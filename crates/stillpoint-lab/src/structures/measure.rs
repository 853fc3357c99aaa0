//! Slices of each contender in turn.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::experiment::threads::on_each;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;
use stillpoint_peers::structures::{BATCH, Call, Ordered, Outcome, PushPop};

use super::{KEYS, PARKED, Plan, Setting, ours};

/// The number of pairs between two reads of the clock, and of calls that are prepared in advance for each thread.
const PAIRS: u64 = 256;
const CALLS: usize = 4096;

enum Structure {
    Pushed(Box<dyn PushPop>),
    /// A structure that stays, with the number of its entries.
    List(Box<dyn Ordered>, Cell<u64>),
    /// A structure that is made for each round.
    Parked,
}

/// A structure, and the name of its rows.
struct Entrant {
    name: String,
    structure: Structure,
}

/// The measurement of a slice.
enum Figures {
    /// Calls a second, of all threads together.
    Rate(f64),
    /// Bytes that wait to be freed beside a stalled reader, and without one. Only glibc's allocator reports them.
    Pending(Option<[f64; 2]>),
}

pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, String> {
    let entrants = |setting: &Setting| setting.contenders.len() + 1;
    let progress = Progress::new(plan.settings.iter().map(entrants).sum::<usize>() * plan.rounds as usize);
    let mut rows = Vec::new();
    for setting in plan.settings.iter().take_while(|_| !interrupt::requested()) {
        progress.stage(&format!(
            "structures: {}, {}",
            setting.scenario,
            number_of(setting.threads as u64, "thread")
        ));
        let entrants: Vec<Entrant> = with_control(setting.contenders.clone())
            .into_iter()
            .map(|name| Ok(Entrant { structure: make(setting, contender(&name))?, name }))
            .collect::<Result<_, String>>()?;
        let slices = in_turns(
            &entrants,
            plan.rounds,
            |round| round,
            |entrant, &round| {
                let figures = measure(plan, setting, entrant, round);
                progress.step();
                figures
            },
        );
        rows.extend(slices.into_iter().map(|(entrant, slices)| row(plan, setting, entrant, slices)));
    }
    Ok(rows)
}

fn make(setting: &Setting, name: &str) -> Result<Structure, String> {
    let missing = || format!("{name} has no {}", setting.scenario);
    Ok(match setting.scenario {
        PARKED => Structure::Parked,
        "stack" | "queue" => {
            Structure::Pushed(ours::make_pushed(name, setting.scenario).ok_or_else(missing)?)
        }
        _ => {
            let list = ours::make_list(name).ok_or_else(missing)?;
            fill(&*list)?;
            Structure::List(list, Cell::new(KEYS))
        }
    })
}

/// Every second key is there.
fn fill(list: &dyn Ordered) -> Result<(), String> {
    let mut thread = list.thread();
    let are_new = (0..KEYS).all(|key| thread.insert(2 * key));
    are_new.then_some(()).ok_or_else(|| "a new list already had a key".to_owned())
}

fn measure(plan: &Plan, setting: &Setting, entrant: &Entrant, round: usize) -> Result<Figures, String> {
    match &entrant.structure {
        Structure::Pushed(structure) => pairs(plan, setting, &**structure).map(Figures::Rate),
        Structure::List(list, entries) => mix(plan, setting, &**list, entries, round).map(Figures::Rate),
        Structure::Parked => {
            let pending = |is_parked| {
                let list = ours::make_list(contender(&entrant.name)).ok_or("no such list")?;
                pending(&*list, plan.replacements, is_parked)
            };
            let (parked, nobody) = (pending(true)?, pending(false)?);
            Ok(Figures::Pending(parked.zip(nobody).map(<[f64; 2]>::from)))
        }
    }
}

/// Calls of a thread, and the time that they took.
struct Pace {
    calls: u64,
    took: Duration,
}

impl Pace {
    /// Calls `work`, which returns how much it did, for the time of a slice.
    fn of(slice: Duration, mut work: impl FnMut() -> u64) -> Self {
        let (begin, mut calls) = (Instant::now(), 0);
        loop {
            calls += work();
            let took = begin.elapsed();
            if took >= slice {
                return Self { calls, took };
            }
        }
    }

    fn rate(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64()
    }
}

/// Each thread pushes and pops. The values that come out must be those that were put in, and a pop after a push must
/// find a value.
fn pairs(plan: &Plan, setting: &Setting, structure: &dyn PushPop) -> Result<f64, String> {
    let outcomes = on_each(&plan.cpus[..setting.threads], |number, barrier| {
        let mut thread = structure.thread();
        let (mut next, mut sum, mut was_empty) = ((number as u64) << 40, 0_u64, false);
        barrier.wait();
        let pace = Pace::of(plan.slice, || {
            let values = next..next + PAIRS;
            next = values.end;
            match thread.pairs(values.clone()) {
                Some(popped) => sum = values.fold(sum, u64::wrapping_sub).wrapping_add(popped),
                None => was_empty = true,
            }
            PAIRS
        });
        // No thread ends while the others measure.
        barrier.wait();
        (pace.rate(), sum, was_empty)
    })?;
    if outcomes.iter().any(|outcome| outcome.2) {
        return Err("the structure was empty after a push".to_owned());
    }
    if outcomes.iter().fold(0_u64, |sum, outcome| sum.wrapping_add(outcome.1)) != 0 {
        return Err("the values that came out are not those that were put in".to_owned());
    }
    Ok(outcomes.iter().map(|outcome| outcome.0).sum())
}

fn calls(setting: &Setting, seed: u64) -> Vec<Call> {
    let mut random = Random::new(seed);
    let mut below = |limit: u64| (random.draw() >> 32) % limit;
    let call = |_| match (below(100), below(2 * KEYS), below(2)) {
        (share, key, _) if share < setting.lookups() => Call::Get(key),
        (_, key, 0) => Call::Insert(key),
        (_, key, _) => Call::Remove(key),
    };
    (0..CALLS).map(call).collect()
}

/// Each thread looks up, inserts and removes at random.
fn mix(
    plan: &Plan,
    setting: &Setting,
    list: &dyn Ordered,
    entries: &Cell<u64>,
    round: usize,
) -> Result<f64, String> {
    let seed = |number| plan.seed + (round * setting.threads + number) as u64;
    let work: Vec<Vec<Call>> = (0..setting.threads).map(|number| calls(setting, seed(number))).collect();
    let outcomes = on_each(&plan.cpus[..setting.threads], |number, barrier| {
        let mut thread = list.thread();
        let mut sum = Outcome::default();
        let mut some = work[number].chunks(PAIRS as usize).cycle();
        barrier.wait();
        let pace = Pace::of(plan.slice, || {
            let calls = some.next().unwrap_or_default();
            let Outcome { inserted, removed, wrong } = thread.calls(calls);
            sum.inserted += inserted;
            sum.removed += removed;
            sum.wrong += wrong;
            calls.len() as u64
        });
        barrier.wait();
        (pace.rate(), sum)
    })?;
    let total = |count: fn(&Outcome) -> u64| outcomes.iter().map(|outcome| count(&outcome.1)).sum::<u64>();
    let mut thread = list.thread();
    let found = (0..2 * KEYS).filter(|&key| thread.get(key).is_some()).count() as u64;
    let said = entries.get().wrapping_add(total(|sum| sum.inserted)).wrapping_sub(total(|sum| sum.removed));
    entries.set(if list.is_exact() { said } else { found });
    match (total(|sum| sum.wrong), entries.get()) {
        (0, expected) if expected == found => Ok(outcomes.iter().map(|outcome| outcome.0).sum()),
        (0, expected) => Err(format!("{found} entries are left, not {expected}")),
        (wrong, _) => Err(format!("{wrong} lookups found the value of another key")),
    }
}

/// How many more bytes are in use after this many replacements, beside a stalled reader, or without one.
fn pending(list: &dyn Ordered, replacements: u64, is_parked: bool) -> Result<Option<f64>, String> {
    fill(list)?;
    let (inside, is_inside) = channel();
    let (end, ends) = channel::<()>();
    std::thread::scope(|scope| {
        let reader = is_parked.then(|| {
            scope.spawn(move || {
                let mut thread = list.thread();
                thread.inside(KEYS, &mut || {
                    // Sending cannot fail: the writer keeps the receiver until it has ended this wait.
                    let _ = inside.send(());
                    let _ = ends.recv();
                })
            })
        });
        if reader.is_some() {
            is_inside.recv().map_err(|_| "the reader panicked")?;
        }
        let mut thread = list.thread();
        let before = heap_bytes();
        let mut is_right = true;
        for number in 0..replacements {
            let key = 2 * (number % KEYS);
            is_right &= thread.remove(key) && thread.insert(key);
            if number % BATCH as u64 == 0 {
                thread.poll();
            }
        }
        let after = heap_bytes();
        drop(end);
        is_right &= reader.is_none_or(|reader| reader.join().is_ok_and(|was_there| was_there));
        let more = after.zip(before).map(|(after, before)| after as f64 - before as f64);
        is_right.then_some(more).ok_or_else(|| "a key was missing, or present twice".to_owned())
    })
}

/// The bytes that the allocator has handed out.
fn heap_bytes() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call has no precondition.
        let all = unsafe { libc::mallinfo2() };
        Some(all.uordblks + all.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

fn row(plan: &Plan, setting: &Setting, entrant: &Entrant, slices: Result<Vec<Figures>, String>) -> Row {
    let mut row = Row::new("structures", setting.scenario, &entrant.name)
        .with("threads", setting.threads)
        .with("rounds", plan.rounds);
    if setting.scenario.starts_with("list") {
        row = row.with("keys", KEYS).with("seed", plan.seed);
    }
    if setting.scenario == PARKED {
        row = row.with("replacements", plan.replacements);
    }
    row.measured(slices, |row, slices| {
        let (mut times, mut pending) = (Vec::new(), Vec::new());
        for slice in slices {
            match slice {
                Figures::Rate(rate) => times.push(setting.threads as f64 * 1e9 / rate),
                Figures::Pending(bytes) => pending.extend(bytes),
            }
        }
        if !times.is_empty() {
            row.put_median("ns_per_op", 2, &times, |&time| time);
            row.put_spread("ns_per_op", times.iter().copied());
        }
        if !pending.is_empty() {
            row.put_median("pending_bytes", 0, &pending, |bytes| bytes[0]);
            row.put_median("pending_bytes_alone", 0, &pending, |bytes| bytes[1]);
        }
    })
}

#[cfg(test)]
mod tests {
    use stillpoint_peers::structures::{OrderedThread, PushPopThread};

    use super::*;
    use crate::experiment::{BenchArgs, Plan as _};

    fn plan(line: &str) -> Plan {
        let cpus = stillpoint_harness::machine::cpus::allowed();
        Plan::new(&BenchArgs::read(line), &cpus[..1], &[]).unwrap()
    }

    /// Gives each value back, and one more.
    struct Wrong(u64);

    impl PushPop for Wrong {
        fn thread(&self) -> Box<dyn PushPopThread + '_> {
            Box::new(Wrong(0))
        }
    }

    impl PushPopThread for Wrong {
        fn push(&mut self, value: u64) {
            self.0 = value + 1;
        }

        fn pop(&mut self) -> Option<u64> {
            Some(self.0)
        }
    }

    /// A list that keeps removed keys, and reports that they were removed.
    struct Kept;

    impl Ordered for Kept {
        fn thread(&self) -> Box<dyn OrderedThread + '_> {
            Box::new(Kept)
        }
    }

    impl OrderedThread for Kept {
        fn get(&mut self, key: u64) -> Option<u64> {
            key.is_multiple_of(2).then_some(!key)
        }

        fn insert(&mut self, key: u64) -> bool {
            key.is_multiple_of(2)
        }

        fn remove(&mut self, _key: u64) -> bool {
            true
        }

        fn inside(&mut self, _key: u64, meanwhile: &mut dyn FnMut()) -> bool {
            meanwhile();
            false
        }
    }

    #[test]
    fn what_comes_out_wrong_is_noticed() {
        let plan = plan("structures --duration 2ms --rounds 2");
        let of = |scenario| plan.settings.iter().find(|setting| setting.scenario == scenario).unwrap();
        let error = pairs(&plan, of("stack"), &Wrong(0)).unwrap_err();
        assert!(error.contains("put in"), "{error}");
        let error = mix(&plan, of("list-50-50"), &Kept, &Cell::new(KEYS * 1000), 0).unwrap_err();
        assert!(error.contains("entries are left"), "{error}");
        let error = pending(&Kept, 10, true).unwrap_err();
        assert!(error.contains("was missing"), "{error}");
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn the_heap_is_seen_to_grow() {
        let before = heap_bytes().unwrap();
        let objects: Vec<Box<[u8; 4096]>> = (0..256).map(|_| Box::new([0; 4096])).collect();
        assert!(heap_bytes().unwrap() >= before + 256 * 4096 / 2, "{}", objects.len());
    }

    #[test]
    fn there_are_as_many_lookups_as_the_name_says() {
        let plan = plan("structures");
        for (scenario, least, most) in [("list-90-10", 3500, 3850), ("list-50-50", 1900, 2200)] {
            let setting = plan.settings.iter().find(|setting| setting.scenario == scenario).unwrap();
            let is_lookup = |call: &&Call| matches!(call, Call::Get(_));
            let lookups = calls(setting, 1).iter().filter(is_lookup).count();
            assert!((least..most).contains(&lookups), "{scenario}: {lookups} of {CALLS}");
        }
    }
}
