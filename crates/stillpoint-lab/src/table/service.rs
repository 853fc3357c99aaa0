//! A web service's map: nearly all operations look up a session by its text, and few begin or end one. There may be more
//! threads than CPUs, so that threads are preempted. Ours is used as a newcomer would: a table of the default domain, and no
//! reader.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stillpoint::rcu::{self, Domain};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::experiment::threads::{Account, start_all};
use stillpoint_harness::machine::cpus::run_on;
use stillpoint_harness::output::json::Row;
use stillpoint_peers::table::{Bound, Dash, Locked, Map, TableKey, TableValue};

use super::FEW;
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
pub(super) fn settings(threads: &[usize], most: usize, round: Duration) -> Result<Vec<Setting>, Stop> {
    let threads = if threads.is_empty() { &[2, 16] } else { threads };
    let mut sizes = vec![FEW.min(most), MANY.min(most)];
    sizes.dedup();
    // Each thread has keys of its own to remove.
    if let Some(threads) = threads.iter().find(|&&threads| threads > sizes[0]) {
        return Err(Stop::usage(format!(
            "{threads} threads are more than the {} entries of the {SERVICE}'s smallest map: give --threads fewer",
            sizes[0]
        )));
    }
    let mut settings = Vec::new();
    for (mix, writes) in MIXES {
        for &entries in &sizes {
            let setting = |&threads| Setting { mix: mix.to_owned(), writes, threads, entries, round };
            settings.extend(threads.iter().map(setting));
        }
    }
    Ok(settings)
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
        let use_it = move |thread| {
            let mut turns = Turns::new(barrier, stop);
            let mut user = User::new(map, keys, thread, setting, seed);
            turns.next();
            let mut operations = 0;
            // Nothing else is ordered by the flag.
            while !stop.load(Ordering::Relaxed) {
                (0..BATCH).for_each(|_| user.operate());
                operations += BATCH;
            }
            // All threads wait until the domain was asked: a thread that ends may free what waits.
            turns.next();
            turns.next();
            (operations, user.wrong)
        };
        let threads = start_all(scope, setting.threads, use_it)?;
        let mut turns = Turns::new(barrier, stop);
        turns.next();
        let (begin, account) = (Instant::now(), Account::open(cpus, first));
        thread::sleep(setting.round);
        stop.store(true, Ordering::Relaxed);
        let took = begin.elapsed().as_secs_f64();
        let used = account.close();
        turns.next();
        let waiting = domain.map(|domain| domain.stats().pending as f64);
        turns.next();
        let (mut operations, mut wrong) = (0, 0);
        // All of them, since the scope itself panics over one that was not joined.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        for end in ended {
            let (done, of_thread) = end.ok().flatten().ok_or("a thread panicked")?;
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

/// The meetings of all threads of a round: when they begin, when they have ended, and when the domain was asked.
struct Turns<'a> {
    barrier: &'a Barrier,
    stop: &'a AtomicBool,
    left: u32,
}

impl<'a> Turns<'a> {
    fn new(barrier: &'a Barrier, stop: &'a AtomicBool) -> Self {
        Self { barrier, stop, left: 3 }
    }

    fn next(&mut self) {
        self.left -= 1;
        self.barrier.wait();
    }
}

/// A thread that panics ends the round, and comes to the meetings that are left: the others wait for it there.
impl Drop for Turns<'_> {
    fn drop(&mut self) {
        // Nothing else is ordered by the flag.
        self.stop.store(true, Ordering::Relaxed);
        (0..self.left).for_each(|_| _ = self.barrier.wait());
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;

    use stillpoint_harness::machine::cpus::allowed;

    use super::*;

    fn small(threads: usize) -> Setting {
        settings(&[threads], 1_000, Duration::from_millis(20)).expect("there are keys for all").remove(0)
    }

    #[test]
    fn there_are_eight_settings() {
        let of_all = |threads: &[usize], most| settings(threads, most, Duration::ZERO);
        let all: Vec<Setting> = of_all(&[], usize::MAX).expect("there are keys for all");
        let of = |setting: &Setting| (setting.writes, setting.entries, setting.threads);
        assert_eq!(all.iter().map(of).collect::<HashSet<_>>().len(), 8);
        assert!(all.iter().any(|setting| of(setting) == (10, 100_000, 16)));
        assert!(of_all(&[4], 512).is_ok_and(|one| one.len() == 2), "one size, one number of threads");
        let refused = of_all(&[4, 513], 512).expect_err("a thread has no key of its own").to_string();
        assert!(refused.contains("513 threads") && refused.contains("give --threads fewer"), "{refused}");
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

    /// Has no lookup.
    struct Panics;

    impl Bound<String, Value> for &Panics {
        fn get(&mut self, _: &String) -> Option<u64> {
            panic!("as asked")
        }

        fn insert(&mut self, _: String, _: Value) -> bool {
            true
        }

        fn remove(&mut self, _: &String) -> bool {
            true
        }

        fn update(&mut self, _: &String, _: impl Fn(&Value) -> Value) -> bool {
            true
        }

        fn get_or_insert(&mut self, _: String, _: Value) -> u64 {
            0
        }
    }

    #[test]
    fn a_thread_that_panics_voids_the_round_and_holds_nobody_up() {
        // Not joined: the others of such a round would wait for ever.
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(run(&Panics, None, &small(2), &allowed(), 7)));
        let error = receive.recv_timeout(Duration::from_secs(60)).expect("the round ends").unwrap_err();
        assert_eq!(error, "a thread panicked");
    }

    #[test]
    fn a_map_that_does_not_remove_is_found_out() {
        let map = Forgets(Dash::with_capacity(0));
        let error = run(&map, None, &small(2), &allowed(), 7).unwrap_err();
        assert!(error.contains("operations found something wrong"), "{error}");
    }
}
