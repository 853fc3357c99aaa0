//! A table that grows from empty: how long single insertions take, and how much memory it has, also after half of its
//! entries are removed.

use std::time::Instant;

use hdrhistogram::Histogram;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::machine::proc::{huge_bytes, resident_bytes};
use stillpoint_peers::table::{Bound, Map, TableKey, TableValue};

use super::single::Figures;

pub(super) fn measure<K: TableKey, V: TableValue, M: Map<K, V>>(
    entries: usize,
    cpus: &[usize],
) -> Result<Figures, String> {
    cpus::pin(*cpus.first().ok_or("no CPU was chosen to measure on")?)?;
    let mut histogram = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let resident = || resident_bytes().ok_or("/proc does not show the memory of this process");
    let (numbers, before) = (0..entries as u64, resident()?);

    let map = M::with_capacity(0);
    let mut reader = map.reader();
    let mut bound = map.bind(&mut reader);
    for number in numbers.clone() {
        let (key, value) = (K::of(number), V::holding(number));
        let begin = Instant::now();
        let inserted = bound.insert(key, value);
        let took = begin.elapsed().as_nanos() as u64;
        histogram.record(took).map_err(|error| error.to_string())?;
        if !inserted {
            return Err(format!("entry {number} was not new"));
        }
    }
    let (grown, huge) = (resident()?.saturating_sub(before), huge_bytes());
    let removed = numbers.step_by(2).filter(|&number| bound.remove(&K::of(number))).count();
    if removed != entries.div_ceil(2) {
        return Err(format!("{removed} of {entries} entries were removed, not half of them"));
    }
    let halved = resident()?.saturating_sub(before);

    let figures = [
        ("insert_ns_mean", histogram.mean()),
        ("insert_ns_p9999", histogram.value_at_quantile(0.9999) as f64),
        ("insert_ns_p99999", histogram.value_at_quantile(0.99999) as f64),
        ("insert_ns_max", histogram.max() as f64),
        ("bytes_per_entry", grown as f64 / entries as f64),
        ("resident_bytes", grown as f64),
        ("resident_bytes_halved", halved as f64),
        ("bytes_per_entry_halved", halved as f64 / (entries - removed) as f64),
    ];
    let huge = huge.map(|bytes| ("huge_page_bytes", bytes as f64));
    Ok(figures.into_iter().chain(huge).map(|(name, value)| (name.to_owned(), value)).collect())
}
