//! In the child process: fills the tables, and measures slices of them in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use stillpoint::rcu;
use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::turns;
use stillpoint_harness::experiment::threads::on_each;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::proc::resident_bytes;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_peers::table::{Dash, Looped, Map, Papaya, ReadBy, Scc, TableContender, TableKey, rte_hash};

use super::ours::Ours;
use super::{FEW, Plan, Setting};
use crate::experiment::{give_memory_back, prepare_child};

/// A slice that took longer than this is not repeated: its figure is that of the rounds so far.
const PATIENCE: Duration = Duration::from_secs(2);

/// A removal with the insertion after it takes as long as several lookups.
const LOOKUPS_PER_CHURN: usize = 8;

pub(super) fn run(plan: &Plan, megabytes: usize, huge_pages: bool) -> Result<Vec<Row>, String> {
    prepare_child(&plan.contenders, &plan.cpus, megabytes, huge_pages)?;
    let progress = Progress::new(plan.settings.len() * plan.rounds as usize * PHASES.len());
    let mut rows = Vec::new();
    let tables = |a: &Setting, b: &Setting| (a.key_bytes, a.entries) == (b.key_bytes, b.entries);
    for settings in plan.settings.chunk_by(tables).take_while(|_| !interrupt::requested()) {
        rows.extend(match settings[0].key_bytes {
            8 => with_keys::<u64>(plan, settings, &progress)?,
            _ => with_keys::<[u64; 2]>(plan, settings, &progress)?,
        });
    }
    if !huge_pages {
        let of_dpdk = |row: &&mut Row| row.contender.starts_with("dpdk");
        rows.iter_mut()
            .filter(of_dpdk)
            .for_each(|row| _ = row.params.insert("huge_pages".into(), false.into()));
    }
    Ok(rows)
}

/// A contender that was filled.
struct Filled<K> {
    name: String,
    table: Box<dyn TableContender<K>>,
    bytes: Option<usize>,
}

/// The measurements in one setting.
#[derive(Default)]
struct Measured {
    /// The figure of each round, for each contender and metric.
    rates: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// Why a contender does not count.
    void: BTreeMap<usize, String>,
    too_long: BTreeSet<(usize, &'static str)>,
}

/// All settings of one size of tables: first the slices that leave the tables as they were filled, then those that write, and
/// then lookups in the tables after those writes.
fn with_keys<K: TableKey + Copy>(
    plan: &Plan,
    settings: &[Setting],
    progress: &Progress,
) -> Result<Vec<Row>, String> {
    let entries = settings[0].entries;
    progress.stage(&format!("table: {entries} keys of {} bytes", size_of::<K>()));
    let keys: Vec<K> = (0..entries as u64).map(K::of).collect();
    let tables = fill(plan, &keys)?;
    let mut measured: Vec<Measured> = settings.iter().map(|_| Measured::default()).collect();
    for (phase, slices) in PHASES.into_iter().zip([reading::<K>(), writing(), afterwards()]) {
        for (setting, measured) in settings.iter().zip(&mut measured) {
            progress.stage(&format!(
                "table: {}, {phase}, {}",
                setting.scenario,
                number_of(setting.threads as u64, "thread")
            ));
            measure(plan, setting, &keys, &tables, &slices, measured, progress)?;
        }
    }
    let rows = settings.iter().zip(&measured).flat_map(|(setting, measured)| {
        let any = |at: &usize| measured.rates.keys().any(|(of, _)| of == at);
        (0..tables.len()).filter(any).map(|at| row(plan, setting, &tables[at], at, measured))
    });
    Ok(rows.collect())
}

fn fill<K: TableKey + Copy>(plan: &Plan, keys: &[K]) -> Result<Vec<Filled<K>>, String> {
    let mut tables: Vec<Filled<K>> = Vec::new();
    for name in with_control(plan.contenders.clone()).into_iter().take_while(|_| !interrupt::requested()) {
        give_memory_back();
        let before = resident_bytes();
        let table = make::<K>(contender(&name), keys.len())?;
        let inserted = table.insert_all(keys);
        if inserted < keys.len() {
            return Err(format!("{name} had room for only {inserted} of {} entries", keys.len()));
        }
        let bytes = table.bytes().map(|bytes| bytes as usize);
        let bytes = bytes.or_else(|| Some(resident_bytes()?.saturating_sub(before?)));
        tables.push(Filled { name, table, bytes });
    }
    Ok(tables)
}

fn make<K: TableKey + Copy>(name: &str, entries: usize) -> Result<Box<dyn TableContender<K>>, String> {
    let ours = || Ours::<K, u64>::with_capacity(entries);
    let papaya = || Papaya::<K, u64>::with_capacity(entries);
    Ok(match name {
        "stillpoint/table" => Box::new(Looped(ours())),
        "stillpoint/table+guard" => Box::new(ReadBy { map: ours(), lookup: Ours::lookup_guarded }),
        "stillpoint/table+get" => {
            let map = Ours::of(rcu::default_domain().clone(), entries);
            Box::new(ReadBy { map, lookup: Ours::lookup_by_get })
        }
        "dpdk/rte_hash" => rte_hash(entries)?,
        "papaya" => Box::new(Looped(papaya())),
        "papaya+guard" => Box::new(ReadBy { map: papaya(), lookup: Papaya::lookup_guarded }),
        "dashmap" => Box::new(Looped(Dash::<K, u64>::with_capacity(entries))),
        "scc" => Box::new(Looped(Scc::<K, u64>::with_capacity(entries))),
        name => return Err(format!("no contender {name}")),
    })
}

/// The work of one thread in a slice.
struct Work<K> {
    /// The keys to look up, with the sum of their values.
    keys: Vec<K>,
    sum: u64,
    /// The keys to remove and insert.
    pairs: Vec<(K, u64)>,
}

impl<K: Copy> Work<K> {
    fn new(setting: &Setting, keys: &[K], thread: usize, seed: u64) -> Self {
        let sequence = super::keys::sequence(&setting.scenario, keys.len(), setting.slice(), seed);
        // No two threads remove the same key.
        let own = sequence.iter().step_by(LOOKUPS_PER_CHURN);
        let own = own.map(|&number| number / setting.threads * setting.threads + thread);
        let pairs = own.filter(|&number| number < keys.len()).map(|number| (keys[number], number as u64));
        Self {
            sum: sequence.iter().map(|&number| number as u64).sum(),
            pairs: pairs.collect(),
            keys: sequence.into_iter().map(|number| keys[number]).collect(),
        }
    }

    /// Removals, each with an insertion, in a mix with this many lookups for each.
    fn turns(&self, lookups: usize) -> usize {
        self.pairs.len().min(self.keys.len() / lookups)
    }
}

/// A kind of slice.
struct Slice<K> {
    metric: &'static str,
    /// The number of operations, and the sum that they must find.
    expected: fn(&Work<K>) -> (usize, u64),
    /// The sum that was found; `None` if the contender has no such call.
    run: fn(&dyn TableContender<K>, &Work<K>) -> Option<u64>,
}

/// The lookups for each removal with its insertion, if nine in ten operations are lookups.
const MOSTLY_READ: usize = 18;
/// The lookups for each removal with its insertion, if half of the operations are lookups.
const HALF_READ: usize = 2;

fn mix<K>(table: &dyn TableContender<K>, work: &Work<K>, lookups: usize) -> Option<u64>
where
    K: Copy,
{
    let turns = work.turns(lookups);
    table.mix(&work.keys[..turns * lookups], &work.pairs[..turns])
}

fn turns_of<K: Copy>(work: &Work<K>, lookups: usize) -> (usize, u64) {
    let turns = work.turns(lookups);
    (turns * (lookups + 2), turns as u64)
}

fn lookups<K: Copy>(work: &Work<K>) -> (usize, u64) {
    (work.keys.len(), work.sum)
}

/// The names of the phases, in their order.
const PHASES: [&str; 3] = ["as filled", "writes", "after writes"];

/// The slices that leave a table as it is.
fn reading<K: Copy>() -> Vec<Slice<K>> {
    let slice = |metric, run| Slice { metric, expected: lookups, run };
    vec![
        slice("lookups_per_s", |table, work| Some(table.lookup(&work.keys))),
        slice("bulk_lookups_per_s", |table, work| table.lookup_bursts(&work.keys)),
        slice("get_or_insert_per_s", |table, work| table.get_or_insert(&work.keys)),
    ]
}

fn writing<K: Copy>() -> Vec<Slice<K>> {
    vec![
        Slice {
            metric: "mix_90_10_per_s",
            expected: |work| turns_of(work, MOSTLY_READ),
            run: |table, work| mix(table, work, MOSTLY_READ),
        },
        Slice {
            metric: "mix_50_50_per_s",
            expected: |work| turns_of(work, HALF_READ),
            run: |table, work| mix(table, work, HALF_READ),
        },
        Slice {
            metric: "insert_remove_per_s",
            expected: |work| (work.pairs.len(), work.pairs.len() as u64),
            run: |table, work| table.churn(&work.pairs),
        },
        Slice {
            metric: "updates_per_s",
            expected: |work| (work.keys.len(), work.keys.len() as u64),
            run: |table, work| table.update(&work.keys),
        },
    ]
}

fn afterwards<K: Copy>() -> Vec<Slice<K>> {
    // A table that was not written, by a way to read, was not churned.
    let run = |table: &dyn TableContender<K>, work: &Work<K>| {
        table.churn(&[])?;
        Some(table.lookup(&work.keys))
    };
    vec![Slice { metric: "churned_lookups_per_s", expected: lookups, run }]
}

/// Measures one setting: every one of these slices of every contender in every round.
fn measure<K: TableKey + Copy>(
    plan: &Plan,
    setting: &Setting,
    keys: &[K],
    tables: &[Filled<K>],
    slices: &[Slice<K>],
    measured: &mut Measured,
    progress: &Progress,
) -> Result<(), String> {
    for round in (0..plan.rounds as usize).take_while(|_| !interrupt::requested()) {
        let seed = |thread| plan.seed + (round * setting.threads + thread) as u64;
        let work: Vec<Work<K>> =
            (0..setting.threads).map(|thread| Work::new(setting, keys, thread, seed(thread))).collect();
        for slice in slices {
            let expected = work.iter().fold(0u64, |sum, work| sum.wrapping_add((slice.expected)(work).1));
            for at in turns(round, tables.len()) {
                if measured.too_long.contains(&(at, slice.metric)) {
                    continue;
                }
                let begun = Instant::now();
                let Some((rate, found)) = run_slice(&*tables[at].table, &work, slice, &plan.cpus)? else {
                    continue;
                };
                if begun.elapsed() > PATIENCE {
                    measured.too_long.insert((at, slice.metric));
                }
                measured.rates.entry((at, slice.metric)).or_default().push(rate);
                if found != expected {
                    let why = format!("{}: found {found}, not {expected}", slice.metric);
                    measured.void.entry(at).or_insert(why);
                }
            }
        }
        progress.step();
    }
    Ok(())
}

/// Runs one slice on all threads at the same time. Returns the operations a second of all threads together, and the sum
/// of what they found.
fn run_slice<K: TableKey + Copy>(
    table: &dyn TableContender<K>,
    work: &[Work<K>],
    slice: &Slice<K>,
    cpus: &[usize],
) -> Result<Option<(f64, u64)>, String> {
    let outcomes = on_each(&cpus[..work.len()], |thread, barrier| {
        barrier.wait();
        let begin = Instant::now();
        let found = (slice.run)(table, black_box(&work[thread]));
        found.map(|found| (found, begin, Instant::now()))
    })?;
    let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let begin = outcomes.iter().map(|outcome| outcome.1).min().ok_or("no thread was started")?;
    let end = outcomes.iter().map(|outcome| outcome.2).max().ok_or("no thread was started")?;
    let operations: usize = work.iter().map(|work| (slice.expected)(work).0).sum();
    let found = outcomes.iter().fold(0u64, |sum, outcome| sum.wrapping_add(outcome.0));
    Ok(Some((operations as f64 / (end - begin).as_secs_f64(), found)))
}

fn row<K>(plan: &Plan, setting: &Setting, filled: &Filled<K>, at: usize, measured: &Measured) -> Row {
    let row = Row::new("table", &setting.scenario, &filled.name)
        .with("entries", setting.entries)
        .with("threads", setting.threads)
        .with("key_bytes", setting.key_bytes)
        .with("value_bytes", size_of::<u64>())
        .with("seed", plan.seed)
        .with("rounds", plan.rounds);
    row.measured(measured.void.get(&at).cloned().map_or(Ok(()), Err), |row, ()| {
        for ((_, metric), rates) in measured.rates.iter().filter(|((of, _), _)| *of == at) {
            let most = rates.iter().copied().fold(0.0, f64::max);
            row.put_median(metric, 0, rates, |&rate| rate);
            row.put(metric.replace("_per_s", "_per_s_most"), most, 0);
        }
        // Pages are too coarse for a small table.
        if let Some(bytes) = filled.bytes.filter(|_| setting.entries > FEW) {
            row.put("bytes_per_entry", bytes as f64 / setting.entries as f64, 1);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds every key, with some value.
    struct Wrong(u64);

    impl TableContender<u64> for Wrong {
        fn insert_all(&self, keys: &[u64]) -> usize {
            keys.len()
        }

        fn lookup(&self, keys: &[u64]) -> u64 {
            keys.len() as u64 * self.0
        }
    }

    #[test]
    fn a_wrong_sum_voids_its_contender_also_when_nobody_else_is_there() {
        let plan = Plan {
            settings: Vec::new(),
            singles: Vec::new(),
            contenders: Vec::new(),
            rounds: 1,
            cpus: stillpoint_harness::machine::cpus::allowed(),
            seed: 1,
        };
        let setting = Setting { key_bytes: 8, entries: 4, scenario: "uniform".to_owned(), threads: 1 };
        let keys: Vec<u64> = (0..4).map(TableKey::of).collect();
        let right: Box<dyn TableContender<u64>> = Box::new(Looped(Ours::<u64, u64>::with_capacity(4)));
        assert_eq!(right.insert_all(&keys), 4);
        for (table, is_void) in [(right, false), (Box::new(Wrong(2)) as _, true)] {
            let tables = [Filled { name: "one".to_owned(), table, bytes: None }];
            let mut measured = Measured::default();
            let progress = Progress::new(1);
            measure(&plan, &setting, &keys, &tables, &reading(), &mut measured, &progress).unwrap();
            let row = row(&plan, &setting, &tables[0], 0, &measured);
            assert_eq!(row.void.is_some(), is_void, "{row:?}");
            assert_eq!(row.metric("lookups_per_s").is_some(), !is_void, "{row:?}");
        }
    }
}
