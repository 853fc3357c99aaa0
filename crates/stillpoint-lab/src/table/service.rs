//! A web service's map: nearly all operations look up a session by its text, and few begin or end one. There may be more
//! threads than CPUs, so that threads are preempted. Ours is used as a newcomer would: a table of the default domain, and no
//! reader.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stillpoint::rcu::{self, Domain};
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::experiment::threads::Account;
use stillpoint_harness::output::format::rate;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{heading, say, table};
use stillpoint_peers::table::{Bound, Dash, Locked, Map, TableKey, TableValue};

use super::FEW;
use super::mixes::run_on;
use super::ours::Ours;
use super::single::Figures;

/// The scenario.
pub(super) const SERVICE: &str = "service";
/// The contender that only this scenario has.
pub(super) const LOCKED: &str = "std/rwlock";
const OURS: &str = "stillpoint/table+get";
/// The contenders.
pub(super) const CONTENDERS: &[&str] = &[OURS, "dashmap", LOCKED];

/// Each mix with the writes in 10,000 operations. Removals and insertions are as many.
const MIXES: [(&str, u32); 2] = [("90/5/5", 1_000), ("99.9/0.05/0.05", 10)];
const MANY: usize = 100_000;
/// Operations between two looks at the clock of the round.
const BATCH: u64 = 64;

/// The least share of another contender's rate, in every setting.
const LEAST_SHARE: f64 = 0.9;
/// The most removed entries that may wait to be freed at the end of a round.
const MOST_WAITING: f64 = 1_000.0;

type Value = [u64; 8];

/// A setting of the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setting {
    mix: String,
    writes: u32,
    threads: usize,
    entries: usize,
    round: Duration,
}

/// The settings: of all mixes, of tables with at most `most` entries, and of these numbers of threads, if any were asked for.
pub(super) fn settings(threads: &[usize], most: usize, round: Duration) -> Vec<Setting> {
    let threads = if threads.is_empty() { &[2, 16] } else { threads };
    let mut sizes = vec![FEW.min(most), MANY.min(most)];
    sizes.dedup();
    let mut settings = Vec::new();
    for (mix, writes) in MIXES {
        for &entries in &sizes {
            let setting = |&threads| Setting { mix: mix.to_owned(), writes, threads, entries, round };
            settings.extend(threads.iter().map(setting));
        }
    }
    settings
}

impl Setting {
    /// A row without figures.
    pub(super) fn row(&self, contender: &str) -> Row {
        let writes = f64::from(self.writes) / 100.0;
        Row::new("table", SERVICE, contender)
            .with("mix", self.mix.as_str())
            .with("percent", vec![100.0 - writes, writes / 2.0, writes / 2.0])
            .with("threads", self.threads)
            .with("entries", self.entries)
            .with("key_bytes", "12 to 32")
            .with("round_s", self.round.as_secs_f64())
    }
}

/// The name of a session: 12 to 32 characters.
fn session(number: u64) -> String {
    let [high, low] = [number, !number].map(u64::of);
    let mut name = format!("{high:016x}{low:016x}");
    name.truncate(12 + (number % 21) as usize);
    name
}

pub(super) fn measure(name: &str, setting: &Setting, cpus: &[usize], seed: u64) -> Result<Figures, String> {
    let entries = setting.entries;
    match contender(name) {
        OURS => {
            let domain = rcu::default_domain();
            run(&Ours::of(domain.clone(), entries), Some(domain), setting, cpus, seed)
        }
        "dashmap" => run(&Dash::with_capacity(entries), None, setting, cpus, seed),
        LOCKED => run(&Locked::with_capacity(entries), None, setting, cpus, seed),
        name => Err(format!("no contender {name}")),
    }
}

/// One round. `domain` is the one that frees the entries of the map.
fn run<M: Sync>(
    map: &M,
    domain: Option<&Domain>,
    setting: &Setting,
    cpus: &[usize],
    seed: u64,
) -> Result<Figures, String>
where
    for<'m> &'m M: Bound<String, Value>,
{
    let first = *cpus.first().ok_or("no CPU was chosen to measure on")?;
    run_on(cpus)?;
    let keys: Vec<String> = (0..setting.entries as u64).map(session).collect();
    let mut filled = map;
    if !(0..).zip(&keys).all(|(number, key)| filled.insert(key.clone(), Value::holding(number))) {
        return Err("two sessions have one name".to_owned());
    }
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(setting.threads + 1));
    let (keys, stop, barrier) = (&keys, &stop, &barrier);
    thread::scope(|scope| {
        let start = |thread| {
            scope.spawn(move || {
                let mut user = User::new(map, keys, thread, setting, seed);
                barrier.wait();
                let mut operations = 0;
                // Nothing else is ordered by the flag.
                while !stop.load(Ordering::Relaxed) {
                    (0..BATCH).for_each(|_| user.operate());
                    operations += BATCH;
                }
                // All threads wait until the domain was asked: a thread that ends may free what waits.
                barrier.wait();
                barrier.wait();
                (operations, user.wrong)
            })
        };
        let threads: Vec<_> = (0..setting.threads).map(start).collect();
        barrier.wait();
        let (begin, account) = (Instant::now(), Account::open(cpus, first));
        thread::sleep(setting.round);
        stop.store(true, Ordering::Relaxed);
        let took = begin.elapsed().as_secs_f64();
        let used = account.close();
        barrier.wait();
        let waiting = domain.map(|domain| domain.stats().pending as f64);
        barrier.wait();
        let (mut operations, mut wrong) = (0, 0);
        for thread in threads {
            let (done, of_thread) = thread.join().map_err(|_| "a thread panicked")?;
            operations += done;
            wrong += of_thread;
        }
        if wrong > 0 {
            return Err(format!("{wrong} operations found something wrong"));
        }
        let operations = operations as f64;
        let figures = [
            ("ops_per_s", operations / took),
            ("cpu_ns_per_op", used.own.as_nanos() as f64 / operations),
            ("foreign_cpus", used.foreign_cpus),
        ];
        let waiting = waiting.map(|waiting| ("waiting", waiting));
        Ok(figures.into_iter().chain(waiting).map(|(name, value)| (name.to_owned(), value)).collect())
    })
}

/// A thread of the service.
struct User<'k, M> {
    map: M,
    keys: &'k [String],
    thread: usize,
    threads: usize,
    /// The writes among all numbers of 32 bits.
    writes: u64,
    random: fastrand::Rng,
    /// The key that this thread has removed, and inserts next.
    removed: Option<usize>,
    /// Operations that did not find what they should.
    wrong: u64,
}

impl<'k, M: Bound<String, Value>> User<'k, M> {
    fn new(map: M, keys: &'k [String], thread: usize, setting: &Setting, seed: u64) -> Self {
        let seed = seed.wrapping_mul(1 << 10).wrapping_add(thread as u64);
        Self {
            map,
            keys,
            thread,
            threads: setting.threads,
            writes: (u64::from(setting.writes) << 32) / 10_000,
            random: fastrand::Rng::with_seed(seed),
            removed: None,
            wrong: 0,
        }
    }

    /// One operation on a random key. Each key is removed by one thread only, so its removals and insertions take effect.
    fn operate(&mut self) {
        let random = self.random.u64(..);
        let at = (((random >> 32) * self.keys.len() as u64) >> 32) as usize;
        let is_right = if random & u64::from(u32::MAX) >= self.writes {
            // A key that is not there was removed for a moment.
            self.map.get(&self.keys[at]).is_none_or(|number| number == at as u64)
        } else if let Some(at) = self.removed.take() {
            self.map.insert(self.keys[at].clone(), Value::holding(at as u64))
        } else {
            let own = at / self.threads * self.threads + self.thread;
            let own = if own < self.keys.len() { own } else { self.thread };
            self.removed = Some(own);
            self.map.remove(&self.keys[own])
        };
        self.wrong += u64::from(!is_right);
    }
}

/// The rows of one setting.
struct Rows<'r>(Vec<&'r Row>);

impl Rows<'_> {
    fn metric(&self, name: &str, metric: &str) -> Option<f64> {
        self.0.iter().find(|row| row.contender == name)?.metric(metric)
    }

    /// Our rate, as a share of another contender's.
    fn share(&self, other: &str) -> Option<f64> {
        Some(self.metric(OURS, "ops_per_s")? / self.metric(other, "ops_per_s")?)
    }

    fn of(&self, param: &str) -> String {
        self.0[0].params[param].to_string().replace('"', "")
    }
}

fn by_setting<'r>(rows: &[&'r Row]) -> Vec<Rows<'r>> {
    rows.chunk_by(|a, b| a.params == b.params).map(|rows| Rows(rows.to_vec())).collect()
}

/// Prints a line for each setting, and whether the bars are met.
pub(super) fn show(rows: &[&Row]) {
    let settings = by_setting(rows);
    let Some(first) = settings.first() else { return };
    let names: Vec<&str> = first.0.iter().map(|row| row.contender.as_str()).collect();
    let is_ours = |name: &str| contender(name) == OURS;
    let has_ours = names.iter().any(|name| is_ours(name));
    let ratio = |name: &&str| (has_ours && !is_ours(name)).then(|| format!("ours/{name}"));
    let of_ours = if has_ours { vec!["waiting".to_owned()] } else { Vec::new() };
    let header = ["mix", "keys", "threads"].map(str::to_owned).into_iter();
    let header: Vec<String> = header
        .chain(names.iter().flat_map(|name| [Some((*name).to_owned()), ratio(name)]).flatten())
        .chain(of_ours)
        .collect();
    let line = |rows: &Rows<'_>| {
        let mut line = ["mix", "entries", "threads"].map(|param| rows.of(param)).to_vec();
        for name in &names {
            let row = rows.0.iter().find(|row| row.contender == *name);
            line.push(row.map(|row| row.shown_or_failed("ops_per_s", rate)).unwrap_or_default());
            if ratio(name).is_some() {
                line.push(rows.share(name).map(|share| format!("{share:.2}")).unwrap_or_default());
            }
        }
        if has_ours {
            let most = rows.metric(OURS, "waiting_most");
            line.push(most.map(|most| format!("{most:.0}")).unwrap_or_default());
        }
        line
    };
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table::of_lines("Table: a web service's map", &header, 1, settings.iter().map(line));
    say(
        "Mix: lookups, insertions and removals, in percent. Operations a second of all threads, median of rounds, each in a new \
         process. Waiting: the removed entries that were not freed yet at the end of a round, in the worst of them.",
    );
    disturbance(rows.iter().copied()).into_iter().for_each(say);
    let verdicts = verdicts(rows);
    if !verdicts.is_empty() {
        heading("Bars");
        verdicts.iter().for_each(say);
    }
}

/// A line for each bar, with the setting that is worst.
fn verdicts(rows: &[&Row]) -> Vec<String> {
    let settings = by_setting(rows);
    let verdict = |is_met: bool, what: String, figure: String, rows: &Rows<'_>| {
        let is_met = if is_met { "met" } else { "missed" };
        let [mix, entries, threads] = ["mix", "entries", "threads"].map(|param| rows.of(param));
        format!("{is_met:>6}: {what}; the worst: {figure} ({mix}, {entries} keys, {threads} threads)")
    };
    let shares = CONTENDERS[1..].iter().filter_map(|&other| {
        let shares = settings.iter().filter_map(|rows| Some((rows.share(other)?, rows)));
        let (least, rows) = shares.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let what = format!("at least {LEAST_SHARE} of the rate of {other} in every setting");
        Some(verdict(least >= LEAST_SHARE, what, format!("{least:.2}"), rows))
    });
    let waiting = settings.iter().filter_map(|rows| Some((rows.metric(OURS, "waiting_most")?, rows)));
    let waiting = waiting.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(most, rows)| {
        let what = format!("at most {MOST_WAITING} removed entries wait at the end of a round");
        verdict(most <= MOST_WAITING, what, format!("{most:.0}"), rows)
    });
    shares.chain(waiting).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use stillpoint_harness::machine::cpus::allowed;

    use super::*;

    fn small(threads: usize) -> Setting {
        settings(&[threads], 1_000, Duration::from_millis(20)).remove(0)
    }

    #[test]
    fn there_are_eight_settings() {
        let all: Vec<Setting> = settings(&[], usize::MAX, Duration::ZERO);
        let of = |setting: &Setting| (setting.writes, setting.entries, setting.threads);
        assert_eq!(all.iter().map(of).collect::<HashSet<_>>().len(), 8);
        assert!(all.iter().any(|setting| of(setting) == (10, 100_000, 16)));
        assert_eq!(settings(&[4], 512, Duration::ZERO).len(), 2, "one size, one number of threads");
    }

    #[test]
    fn sessions_have_different_names_of_different_lengths() {
        let names: HashSet<String> = (0..MANY as u64).map(session).collect();
        assert_eq!(names.len(), MANY);
        let lengths: HashSet<usize> = names.iter().map(String::len).collect();
        assert_eq!((lengths.len(), lengths.iter().min(), lengths.iter().max()), (21, Some(&12), Some(&32)));
    }

    #[test]
    fn every_contender_has_a_rate_and_ours_counts_what_waits() {
        for name in CONTENDERS {
            for threads in [1, 5] {
                let figures = measure(name, &small(threads), &allowed(), 7).unwrap();
                assert!(figures["ops_per_s"] > 0.0, "{name}: {figures:?}");
                assert_eq!(figures.contains_key("waiting"), *name == OURS, "{name}: {figures:?}");
            }
        }
    }

    /// Loses what is inserted after the first thousand.
    struct Forgets(Dash<String, Value>);

    impl Bound<String, Value> for &Forgets {
        fn get(&mut self, key: &String) -> Option<u64> {
            (&self.0).get(key)
        }

        fn insert(&mut self, key: String, value: Value) -> bool {
            (&self.0).insert(key, value)
        }

        fn remove(&mut self, _: &String) -> bool {
            false
        }

        fn update(&mut self, _: &String, _: impl Fn(&Value) -> Value) -> bool {
            false
        }

        fn get_or_insert(&mut self, _: String, _: Value) -> u64 {
            0
        }
    }

    #[test]
    fn a_map_that_does_not_remove_is_found_out() {
        let map = Forgets(Dash::with_capacity(0));
        let error = run(&map, None, &small(2), &allowed(), 7).unwrap_err();
        assert!(error.contains("operations found something wrong"), "{error}");
    }

    fn row(contender: &str, threads: usize, rate: f64, waiting: f64) -> Row {
        let mut row = Setting { threads, ..small(1) }.row(contender);
        row.put("ops_per_s", rate, 0);
        if contender == OURS {
            row.put("waiting_most", waiting, 0);
        }
        row
    }

    #[test]
    fn the_worst_setting_decides() {
        let of = |rate, waiting| {
            let rows =
                [row(OURS, 2, 100.0, 5.0), row("dashmap", 2, 100.0, 0.0), row(OURS, 16, rate, waiting)];
            let rows = rows.into_iter().chain([row("dashmap", 16, 100.0, 0.0)]).collect::<Vec<_>>();
            verdicts(&rows.iter().collect::<Vec<_>>())
        };
        let is_met =
            |lines: &[String]| lines.iter().map(|line| line.starts_with("   met")).collect::<Vec<_>>();
        assert_eq!(is_met(&of(90.0, 1_000.0)), [true, true]);
        assert_eq!(is_met(&of(89.0, 1_001.0)), [false, false]);
        assert!(of(89.0, 7.0)[0].contains("0.89 (90/5/5, 1000 keys, 16 threads)"), "{:?}", of(89.0, 7.0));
        let mut alone = row(OURS, 2, 1.0, 0.0);
        alone.void = Some("it was cut short".to_owned());
        alone.metrics.clear();
        assert!(verdicts(&[&alone, &row("dashmap", 2, 1.0, 0.0)]).is_empty());
    }
}
