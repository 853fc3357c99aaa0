//! Mixes of operations from two harnesses of other authors: the four mixes of the crate `bustle`, and the three of
//! `conc-map-bench`, a program that uses it. `bustle` provides the loops, the keys and the clock, and checks the
//! result of each operation. Threads begin together, and the scheduler places them on the chosen CPUs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bustle::{Mix, Workload};
use stillpoint_harness::machine::cpus::run_on;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::random::Random;
use stillpoint_peers::table::{Collected, Map, TableKey, TableValue};

use super::single::Figures;

/// The scenario of each harness.
pub(super) const BUSTLE: &str = "bustle";
pub(super) const CONC_MAP_BENCH: &str = "conc-map-bench";

/// A mix, and how it is run.
pub(super) struct Mixed {
    pub(super) harness: &'static str,
    pub(super) name: &'static str,
    percent: Mix,
    /// The share of the capacity that is filled in advance.
    prefill: f64,
    /// Operations of all threads, as a multiple of the capacity.
    operations: f64,
}

/// A mix that needs a nearly full table has the prefill of `conc-map-bench`; a mix that fills the table has none.
const FULL: f64 = 0.75;

pub(super) fn all() -> [Mixed; 7] {
    // The number of operations is the default of each harness.
    let bustle = |name, percent, prefill| Mixed { harness: BUSTLE, name, percent, prefill, operations: 0.75 };
    let conc_map_bench = |name, [read, insert, remove, update]: [u8; 4], prefill| Mixed {
        harness: CONC_MAP_BENCH,
        name,
        percent: Mix { read, insert, remove, update, upsert: 0 },
        prefill,
        operations: 1.0,
    };
    [
        bustle("read heavy 94/2/1/3", Mix::read_heavy(), FULL),
        bustle("insert heavy", Mix::insert_heavy(), 0.0),
        bustle("update heavy", Mix::update_heavy(), FULL),
        bustle("uniform mix", Mix::uniform(), FULL),
        conc_map_bench("read heavy 98/1/1", [98, 1, 1, 0], FULL),
        conc_map_bench("exchange", [10, 40, 40, 10], FULL),
        conc_map_bench("rapid grow", [5, 80, 5, 10], 0.0),
    ]
}

fn of(name: &str) -> Result<Mixed, String> {
    all().into_iter().find(|mix| mix.name == name).ok_or_else(|| format!("no mix {name}"))
}

/// A row without figures.
pub(super) fn row(contender: &str, name: &str, threads: usize, capacity: usize) -> Row {
    let Ok(mix) = of(name) else { return Row::new("table", name, contender) };
    let Mix { read, insert, remove, update, upsert } = mix.percent;
    Row::new("table", mix.harness, contender)
        .with("mix", name)
        .with("percent", vec![read, insert, remove, update, upsert])
        .with("threads", threads)
        .with("capacity", 1usize << log2(capacity))
        .with("prefill", mix.prefill)
        .with("operations", mix.operations)
}

fn log2(capacity: usize) -> u8 {
    capacity.ilog2() as u8
}

pub(super) fn measure<K: TableKey, V: TableValue, M: Map<K, V>>(
    name: &str,
    capacity: usize,
    threads: usize,
    cpus: &[usize],
    seed: u64,
) -> Result<Figures, String> {
    // All threads of the harness inherit the CPUs, even the thread that only reads the clock.
    run_on(cpus)?;
    let mix = of(name)?;
    let mut random = Random::new(seed);
    let mut bytes = [0; 32];
    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.draw().to_le_bytes());
    let mut workload = Workload::new(threads, mix.percent);
    workload.initial_capacity_log2(log2(capacity)).prefill_fraction(mix.prefill);
    workload.operations(mix.operations).seed(bytes);
    let run = || workload.run_silently::<Collected<K, V, M>>();
    let measured = catch_unwind(AssertUnwindSafe(run));
    let measured = measured.map_err(|_| "an operation found something wrong")?;
    Ok(Figures::from([("ops_per_s".to_owned(), measured.throughput)]))
}
