//! In the child process: fills the tables, and measures slices of them in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Map, Value};
use stillpoint_harness::experiment::rounds::turns;
use stillpoint_harness::experiment::threads::on_each;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::proc::resident_bytes;
use stillpoint_harness::output::json::{Row, rounded};
use stillpoint_harness::output::progress::Progress;
use stillpoint_peers::table::{Dash, Papaya, PapayaGuard, Scc, TableContender, TableKey};

use super::ours::{Guarded, Protected};
use super::{Plan, Setting};
use crate::experiment::prepare_child;

/// A slice that took longer is not asked for again: its figure is that of the rounds so far.
const PATIENCE: Duration = Duration::from_secs(2);

/// One removal with the insertion after it takes as long as some lookups.
const LOOKUPS_PER_CHURN: usize = 8;

pub(super) fn run(plan: &Plan, megabytes: usize, huge_pages: bool) -> Result<Vec<Row>, String> {
    prepare_child(&plan.contenders, &plan.cpus, megabytes, huge_pages)?;
    let progress = Progress::new(plan.settings.len() * plan.rounds as usize);
    let mut rows = Vec::new();
    for key_bytes in [8, 16] {
        let settings: Vec<&Setting> =
            plan.settings.iter().filter(|setting| setting.key_bytes == key_bytes).collect();
        if settings.is_empty() || interrupt::requested() {
            continue;
        }
        rows.extend(match key_bytes {
            8 => with_keys::<u64>(plan, &settings, &progress)?,
            _ => with_keys::<[u64; 2]>(plan, &settings, &progress)?,
        });
    }
    if !huge_pages {
        let ours = |row: &&mut Row| row.contender.starts_with("dpdk");
        rows.iter_mut().filter(ours).for_each(|row| _ = row.params.insert("huge_pages".into(), false.into()));
    }
    Ok(rows)
}

/// A contender that was filled, and what was measured.
struct Filled<K> {
    table: Box<dyn TableContender<K>>,
    bytes: Option<usize>,
    insertions: Option<Map<String, Value>>,
}

fn with_keys<K: TableKey>(
    plan: &Plan,
    settings: &[&Setting],
    progress: &Progress,
) -> Result<Vec<Row>, String> {
    progress.stage(&format!("table: {} keys of {} bytes", plan.entries, size_of::<K>()));
    let keys: Vec<K> = (0..plan.entries as u64).map(K::of).collect();
    let tables = fill(plan, &keys)?;
    let mut rows = Vec::new();
    for setting in settings {
        progress.stage(&format!("table: {}, {} threads", setting.scenario, setting.threads));
        rows.extend(measure(plan, setting, &keys, &tables, progress)?);
    }
    Ok(rows)
}

fn fill<K: TableKey>(plan: &Plan, keys: &[K]) -> Result<Vec<Filled<K>>, String> {
    let mut tables: Vec<Filled<K>> = Vec::new();
    let mut add = |make: &dyn Fn(usize) -> Result<Box<dyn TableContender<K>>, String>, grows: bool| {
        let insertions = (plan.growth && grows).then(|| time_insertions(&*make(0)?, keys)).transpose()?;
        give_memory_back();
        let before = resident_bytes();
        let table = make(keys.len())?;
        insert_all(&*table, keys)?;
        let bytes = table
            .bytes()
            .map(|bytes| bytes as usize)
            .or_else(|| Some(resident_bytes()?.saturating_sub(before?)));
        tables.push(Filled { table, bytes, insertions });
        Ok::<(), String>(())
    };
    for name in plan.contenders.iter().take_while(|_| !interrupt::requested()) {
        match name.as_str() {
            "stillpoint/table" => add(&|entries| Ok(Box::new(Protected::<K>::with_capacity(entries))), true)?,
            "stillpoint/table+guard" => {
                add(&|entries| Ok(Box::new(Guarded::<K>::with_capacity(entries))), false)?;
            }
            "dpdk/rte_hash" => add(&stillpoint_peers::table::rte_hash::<K>, false)?,
            "papaya" => add(&|entries| Ok(Box::new(Papaya::<K>::with_capacity(entries))), true)?,
            "papaya+guard" => add(&|entries| Ok(Box::new(PapayaGuard::<K>::with_capacity(entries))), false)?,
            "dashmap" => add(&|entries| Ok(Box::new(Dash::<K>::with_capacity(entries))), true)?,
            "scc" => add(&|entries| Ok(Box::new(Scc::<K>::with_capacity(entries))), true)?,
            name => return Err(format!("there is no contender {name}")),
        }
    }
    Ok(tables)
}

fn insert_all<K: TableKey>(table: &dyn TableContender<K>, keys: &[K]) -> Result<(), String> {
    for (number, &key) in keys.iter().enumerate() {
        if !table.insert(key, number as u64) {
            return Err(format!("{} had no room for entry {number} of {}", table.name(), keys.len()));
        }
    }
    Ok(())
}

/// The distribution of single insertions into a table that grows from nothing.
fn time_insertions<K: TableKey>(
    table: &dyn TableContender<K>,
    keys: &[K],
) -> Result<Map<String, Value>, String> {
    let mut histogram = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    for (number, &key) in keys.iter().enumerate() {
        let begin = Instant::now();
        table.insert(key, number as u64);
        let took = begin.elapsed().as_nanos() as u64;
        histogram.record(took).map_err(|error| error.to_string())?;
    }
    let figures = [
        ("insert_ns_mean", histogram.mean()),
        ("insert_ns_p9999", histogram.value_at_quantile(0.9999) as f64),
        ("insert_ns_p99999", histogram.value_at_quantile(0.99999) as f64),
        ("insert_ns_max", histogram.max() as f64),
    ];
    Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), rounded(value, 0))).collect())
}

/// What the allocator keeps of tables that are gone would otherwise be used for the next one, and not seen to grow.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A kind of slice of a contender: gives the number of operations and a checksum, or nothing if it has no such call.
type Slice<K> = fn(&dyn TableContender<K>, &Work<K>) -> Option<(usize, u64)>;

/// What one thread does in a slice.
struct Work<K> {
    keys: Vec<K>,
    pairs: Vec<(K, u64)>,
}

/// Lookups for each removal with its insertion, when nine operations of ten are lookups, and when half of them are.
const MOSTLY_READ: usize = 18;
const HALF_READ: usize = 2;

fn mix<K: TableKey>(table: &dyn TableContender<K>, work: &Work<K>, lookups: usize) -> Option<(usize, u64)> {
    if !table.has_own_writers() {
        return None;
    }
    let turns = work.pairs.len().min(work.keys.len() / lookups);
    let there = table.mix(&work.keys[..turns * lookups], &work.pairs[..turns]);
    Some((turns * (lookups + 2), there))
}

fn slices<K: TableKey>() -> [(&'static str, Slice<K>); 5] {
    [
        ("mix_90_10_per_s", |table, work| mix(table, work, MOSTLY_READ)),
        ("mix_50_50_per_s", |table, work| mix(table, work, HALF_READ)),
        ("lookups_per_s", |table, work| Some((work.keys.len(), table.lookup(&work.keys)))),
        ("bulk_lookups_per_s", |table, work| Some((work.keys.len(), table.lookup_bursts(&work.keys)?))),
        ("insert_remove_per_s", |table, work| {
            table.has_own_writers().then(|| (work.pairs.len(), table.churn(&work.pairs)))
        }),
    ]
}

/// Measures one setting: every kind of slice of every contender in every round.
fn measure<K: TableKey>(
    plan: &Plan,
    setting: &Setting,
    keys: &[K],
    tables: &[Filled<K>],
    progress: &Progress,
) -> Result<Vec<Row>, String> {
    let mut rates: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    let mut void: BTreeMap<usize, String> = BTreeMap::new();
    let mut too_long: BTreeSet<(usize, &str)> = BTreeSet::new();
    for round in 0..plan.rounds as usize {
        if interrupt::requested() {
            break;
        }
        let work: Vec<Work<K>> = (0..setting.threads)
            .map(|thread| {
                let seed = plan.seed + (round * setting.threads + thread) as u64;
                let sequence = super::keys::sequence(&setting.scenario, plan.entries, plan.slice, seed);
                // Each thread has keys of its own to remove.
                let own = sequence.iter().step_by(LOOKUPS_PER_CHURN);
                let own = own.map(|&number| number / setting.threads * setting.threads + thread);
                let own = own.filter(|&number| number < plan.entries);
                let pairs = own.map(|number| (keys[number], number as u64)).collect();
                Work { keys: sequence.into_iter().map(|number| keys[number]).collect(), pairs }
            })
            .collect();
        for (metric, slice) in slices::<K>() {
            let mut sums: Vec<(usize, u64)> = Vec::new();
            for at in turns(round, tables.len()) {
                if too_long.contains(&(at, metric)) {
                    continue;
                }
                let begun = Instant::now();
                let Some((rate, sum)) = run_slice(&*tables[at].table, &work, slice, &plan.cpus)? else {
                    continue;
                };
                if begun.elapsed() > PATIENCE {
                    too_long.insert((at, metric));
                }
                rates.entry((at, metric)).or_default().push(rate);
                sums.push((at, sum));
            }
            if let Some(&(_, expected)) = sums.first() {
                for (at, sum) in sums.into_iter().filter(|&(_, sum)| sum != expected) {
                    void.entry(at)
                        .or_insert(format!("{metric}: the sum {sum} is not {expected}, as of the others"));
                }
            }
        }
        progress.step();
    }
    let measured = |at: &usize| rates.keys().any(|(of, _)| of == at);
    Ok((0..tables.len())
        .filter(measured)
        .map(|at| row(plan, setting, &tables[at], at, &rates, void.get(&at)))
        .collect())
}

/// Runs one slice on each thread at the same time: operations a second of all together, and the sum of the sums.
fn run_slice<K: TableKey>(
    table: &dyn TableContender<K>,
    work: &[Work<K>],
    slice: Slice<K>,
    cpus: &[usize],
) -> Result<Option<(f64, u64)>, String> {
    let outcomes = on_each(&cpus[..work.len()], |thread, barrier| {
        barrier.wait();
        let begin = Instant::now();
        let done = slice(table, black_box(&work[thread]));
        done.map(|(count, sum)| (count, sum, begin, Instant::now()))
    })?;
    let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let begin = outcomes.iter().map(|outcome| outcome.2).min().ok_or("no thread")?;
    let end = outcomes.iter().map(|outcome| outcome.3).max().ok_or("no thread")?;
    let operations: usize = outcomes.iter().map(|outcome| outcome.0).sum();
    let sum = outcomes.iter().fold(0u64, |sum, outcome| sum.wrapping_add(outcome.1));
    Ok(Some((operations as f64 / (end - begin).as_secs_f64(), sum)))
}

fn row<K: TableKey>(
    plan: &Plan,
    setting: &Setting,
    filled: &Filled<K>,
    at: usize,
    rates: &BTreeMap<(usize, &str), Vec<f64>>,
    void: Option<&String>,
) -> Row {
    let row = Row::new("table", &setting.scenario, filled.table.name())
        .with("entries", plan.entries)
        .with("threads", setting.threads)
        .with("key_bytes", setting.key_bytes)
        .with("rounds", plan.rounds);
    row.measured(void.cloned().map_or(Ok(()), Err), |row, ()| {
        for (metric, _) in slices::<K>() {
            let Some(rates) = rates.get(&(at, metric)) else { continue };
            let most = rates.iter().copied().fold(0.0, f64::max);
            row.put_median(metric, 0, rates, |&rate| rate);
            row.put(metric.replace("_per_s", "_per_s_most"), most, 0);
        }
        if setting.threads == 1 && setting.scenario == "uniform" {
            if let Some(bytes) = filled.bytes.filter(|_| filled.table.has_own_writers()) {
                row.put("bytes_per_entry", bytes as f64 / plan.entries as f64, 1);
            }
            row.metrics.extend(filled.insertions.clone().unwrap_or_default());
        }
    })
}
