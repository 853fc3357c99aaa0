//! An application: connections with idle timeouts, which packets renew. A connection without packets expires, and
//! another one takes its place.
//!
//! The time is real, because rte_timer and tokio have no other. Packets come at a fixed rate, in bursts, whatever the
//! contender does, so all contenders have the same work. Packets that do not fit into the receive ring are dropped,
//! as a network card would drop them.

use clap::ValueEnum;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::proc::resident_bytes;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;
use stillpoint_peers::timer::{DelayQueues, HashWheel, IdleTimers, Nexus, idle_rte_timer};

use super::Plan;
use super::measure::{self, Figures};
use super::ours::Idle;
use crate::experiment::give_memory_back;

/// Packets of a burst.
const BURST: usize = 32;
/// Nanoseconds between two bursts: a million packets a second.
const GAP: u64 = 32_000;
/// Bursts that the receive ring holds: 1,024 packets.
const RING: u64 = 32;
/// A row counts at least this many bursts: a thread that was preempted for longer than two timeouts goes on until then.
const LEAST: usize = 64;
/// The timeout is this many nanoseconds times the number of connections. So on average three packets of a connection
/// come within its timeout.
const EACH: u64 = 3_000;

/// How the connection of a packet is chosen.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// All connections are equally likely.
    Uniform,
    /// Nine of ten packets belong to a tenth of the connections.
    Skewed,
}

stillpoint_harness::named!(Choice);

impl Choice {
    fn draw(self, random: &mut Random, connections: u64) -> u32 {
        let drawn = random.draw();
        let any = drawn % connections;
        match self {
            Self::Skewed if !(drawn >> 32).is_multiple_of(10) => (any / 10 * 10) as u32,
            _ => any as u32,
        }
    }
}

/// Rounds of this scenario, each of which lasts for two timeouts.
pub(super) fn rounds(plan: &Plan) -> u32 {
    if plan.has("connections") { plan.rounds.div_ceil(7) } else { 0 }
}

pub(super) const CHOICES: usize = 2;

pub(super) fn run(plan: &Plan, progress: &Progress) -> Vec<Row> {
    let connections = plan.connections;
    let of_choice = |choice: Choice| {
        progress.stage(&format!("timer: {connections} connections, {}", choice.name()));
        let mut random = Random::new(plan.seed);
        let measure = |name: &str, seed: &u64| {
            give_memory_back();
            let mut application = Application::new(connections, choice, *seed);
            let before = resident()?;
            let Some(mut timers) = make(name, connections)? else { return Ok(Figures::new()) };
            let mut figures = application.run(timers.as_mut())?;
            let taken = resident()?.saturating_sub(before);
            figures.insert("bytes_per_connection", taken as f64 / connections as f64);
            Ok(figures)
        };
        let of = ("connections", connections);
        let rows = measure::measured(plan, of, rounds(plan), progress, || random.draw(), measure);
        let with = |row: Row| {
            let timeout = connections as f64 * EACH as f64 / 1e6;
            row.with("time", "real").with("choice", choice.name()).with("timeout_ms", timeout)
        };
        rows.into_iter().map(with).collect::<Vec<Row>>()
    };
    [Choice::Uniform, Choice::Skewed].into_iter().flat_map(of_choice).collect()
}

fn resident() -> Result<usize, String> {
    resident_bytes().ok_or_else(|| "/proc does not show the memory of this process".to_owned())
}

/// `None` for contenders that take no part: variants that differ only in the source of time, and contenders that do
/// not fire in real time.
fn make(name: &str, connections: usize) -> Result<Option<Box<dyn IdleTimers>>, String> {
    Ok(Some(match contender(name) {
        "stillpoint/wheel" => Box::new(Idle::new(connections)),
        "dpdk/rte_timer" => idle_rte_timer(connections, false)?,
        "drop-in/rte_timer" => idle_rte_timer(connections, true)?,
        "tokio-util" => Box::new(DelayQueues::new(connections)?),
        "hierarchical_hash_wheel_timer" => Box::new(HashWheel::new()),
        "nexus-timer" => Box::new(Nexus::new(connections, false, Nexus::TICK)?),
        _ => return Ok(None),
    }))
}

/// The application's own record of its connections, against which the timers are checked.
struct Application {
    /// The time at which each connection will have been silent for its timeout.
    deadlines: Vec<u64>,
    timeout: u64,
    choice: Choice,
    random: Random,
}

impl Application {
    fn new(connections: usize, choice: Choice, seed: u64) -> Self {
        // The values are not zero, because memory that was never written is not resident.
        let deadlines = vec![u64::MAX; connections];
        Self { deadlines, timeout: connections as u64 * EACH, choice, random: Random::new(seed) }
    }

    fn open(
        &mut self,
        timers: &mut dyn IdleTimers,
        connection: u32,
        now: u64,
        timeout: u64,
    ) -> Result<(), String> {
        self.deadlines[connection as usize] = now + timeout;
        timers.open(connection, now, timeout)
    }

    /// Opens all connections, and takes packets for twice the timeout. Only the second half counts, and at least [`LEAST`]
    /// bursts of it.
    fn run(&mut self, timers: &mut dyn IdleTimers) -> Result<Figures, String> {
        let connections = self.deadlines.len() as u32;
        for connection in 0..connections {
            let (now, timeout) = (timers.clock(), self.timeout / 2 + self.random.draw() % self.timeout / 2);
            self.open(timers, connection, now, timeout)?;
        }
        let begin = timers.clock();
        // Some timers may have become due before the first poll.
        let mut course = Course { arrival: begin, finished: 0 };
        let mut counted = Counted::default();
        let mut expired = Vec::with_capacity(connections as usize);
        let mut burst = [0; BURST];
        while !interrupt::requested() {
            burst.fill_with(|| self.choice.draw(&mut self.random, u64::from(connections)));
            let now = course.wait(timers);
            if now >= begin + 2 * self.timeout && counted.polls.len() >= LEAST {
                break;
            }
            if now < begin + self.timeout {
                counted = Counted::default();
            }
            let done = timers.expire(now, &mut expired);
            let polled = timers.clock();
            counted.polls.push(polled - now);
            counted.expired += expired.len();
            for connection in expired.drain(..) {
                let late = self.judge(connection, polled, course.finished, timers.tick())?;
                counted.latest = counted.latest.max(late);
                self.open(timers, connection, now, self.timeout)?;
            }
            if done {
                course.finished = now;
            }
            let there = timers.packets(&burst, now, self.timeout);
            if there != BURST {
                return Err(format!("{} of {BURST} connections had no timer", BURST - there));
            }
            for connection in burst {
                self.deadlines[connection as usize] = now + self.timeout;
            }
            counted.busy += timers.clock() - now;
            counted.dropped += course.drop_what_has_no_place(now);
        }
        self.judge_those_left(course.finished, timers.tick())?;
        Ok(counted.figures())
    }

    /// How late a connection has expired, in nanoseconds. It is an error if it has expired before its deadline, or
    /// later than in the first complete poll after its deadline.
    fn judge(&self, connection: u32, polled: u64, finished: u64, tick: u64) -> Result<u64, String> {
        let deadline = self.deadlines[connection as usize];
        if polled < deadline {
            return Err(format!(
                "a connection with traffic has expired, {} ns before its time",
                deadline - polled
            ));
        }
        if deadline + tick <= finished {
            return Err(format!(
                "a connection has expired a poll late, {} ns after its time",
                polled - deadline
            ));
        }
        Ok(polled - deadline)
    }

    /// Checks that the timers that are left are not due, or became due after the last complete poll.
    fn judge_those_left(&self, finished: u64, tick: u64) -> Result<(), String> {
        let silent = self.deadlines.iter().filter(|&&deadline| deadline + tick <= finished).count();
        if silent == 0 { Ok(()) } else { Err(format!("{silent} silent connections have not expired")) }
    }
}

/// The progress of time.
struct Course {
    /// The time at which the next burst comes.
    arrival: u64,
    /// The time of the last complete poll, which left no due timer.
    finished: u64,
}

impl Course {
    /// Waits until the next burst has come. Returns the time.
    fn wait(&mut self, timers: &mut dyn IdleTimers) -> u64 {
        loop {
            let now = timers.clock();
            if now >= self.arrival {
                self.arrival += GAP;
                return now;
            }
            std::hint::spin_loop();
        }
    }

    /// Drops the bursts that came before `now` and do not fit into the ring. Returns their number.
    fn drop_what_has_no_place(&mut self, now: u64) -> u64 {
        let lost = (now.saturating_sub(self.arrival) / GAP).saturating_sub(RING);
        self.arrival += lost * GAP;
        lost
    }
}

/// The measurements, in nanoseconds and bursts.
#[derive(Default)]
struct Counted {
    polls: Vec<u64>,
    busy: u64,
    expired: usize,
    dropped: u64,
    latest: u64,
}

impl Counted {
    fn figures(mut self) -> Figures {
        let bursts = self.polls.len() as f64;
        self.polls.sort_unstable();
        let at = |of_thousand: usize| {
            self.polls.get((self.polls.len() * of_thousand / 1_000).min(self.polls.len().saturating_sub(1)))
        };
        let us = |nanoseconds: Option<&u64>| nanoseconds.map_or(0.0, |&time| time as f64 / 1e3);
        let packets = bursts * BURST as f64;
        Figures::from([
            ("packets_per_s", packets * 1e9 / self.busy.max(1) as f64),
            ("poll_us_p50", us(at(500))),
            ("poll_us_p999", us(at(999))),
            ("poll_us_max", us(self.polls.last())),
            ("late_us_max", self.latest as f64 / 1e3),
            ("expired_per_1000_packets", self.expired as f64 * 1e3 / packets),
            ("dropped_percent", self.dropped as f64 * 100.0 / (self.dropped as f64 + bursts)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: usize = 1_000;

    /// A fault of a contender.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        /// It forgets every tenth connection.
        Loses,
        /// It ignores packets.
        Ignores,
        /// It fires only in every hundredth poll.
        Sleeps,
        /// It adds timers so slowly that the first timers are due before all are added. This is no fault.
        Slow,
        /// Its thread is preempted in the tenth poll, for three timeouts: no fault.
        Preempted,
    }

    /// Timers that are all checked in each poll. Each read of the clock takes 100 ns.
    struct Plain {
        now: u64,
        polls: u64,
        deadlines: Vec<u64>,
        fault: Fault,
    }

    impl Plain {
        fn loses(&self, connection: u32) -> bool {
            self.fault == Fault::Loses && connection.is_multiple_of(10)
        }
    }

    impl IdleTimers for Plain {
        fn clock(&mut self) -> u64 {
            self.now += 100;
            self.now
        }

        fn tick(&self) -> u64 {
            1
        }

        fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
            self.deadlines[connection as usize] = now + timeout;
            self.now += if self.fault == Fault::Slow { 4_000 } else { 0 };
            if self.loses(connection) {
                self.deadlines[connection as usize] = u64::MAX;
            }
            Ok(())
        }

        fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
            for &connection in connections {
                if self.fault != Fault::Ignores && !self.loses(connection) {
                    self.deadlines[connection as usize] = now + timeout;
                }
            }
            connections.len()
        }

        fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool {
            self.polls += 1;
            if self.fault == Fault::Preempted && self.polls == 10 {
                self.now += 3 * CONNECTIONS as u64 * EACH;
            }
            if self.fault == Fault::Sleeps && !self.polls.is_multiple_of(100) {
                return true;
            }
            for (connection, deadline) in self.deadlines.iter_mut().enumerate() {
                if *deadline <= now {
                    *deadline = u64::MAX;
                    expired.push(connection as u32);
                }
            }
            true
        }
    }

    fn run(choice: Choice, fault: Fault) -> Result<Figures, String> {
        let mut timers = Plain { now: 0, polls: 0, deadlines: vec![u64::MAX; CONNECTIONS], fault };
        Application::new(CONNECTIONS, choice, 1).run(&mut timers)
    }

    #[test]
    fn what_falls_silent_expires_and_the_figures_say_how_much() {
        let uniform = run(Choice::Uniform, Fault::None).unwrap();
        // With three packets within a timeout on average, a connection expires once in e³ - 1 packets.
        let expired = uniform["expired_per_1000_packets"];
        assert!((30.0..80.0).contains(&expired), "{expired}");
        assert!((uniform["poll_us_max"], uniform["dropped_percent"]) == (0.1, 0.0), "{uniform:?}");
        assert!(uniform["late_us_max"] <= 33.0, "{uniform:?}");
        let skewed = run(Choice::Skewed, Fault::None).unwrap();
        assert!(skewed["expired_per_1000_packets"] > 2.0 * expired, "{skewed:?}");
    }

    #[test]
    fn what_is_due_before_the_first_poll_is_not_late() {
        let slow = run(Choice::Uniform, Fault::Slow).unwrap();
        assert!(slow["expired_per_1000_packets"] > 0.0, "{slow:?}");
    }

    #[test]
    fn a_thread_that_was_preempted_counts_as_many_bursts_as_any_other() {
        let preempted = run(Choice::Uniform, Fault::Preempted).unwrap();
        assert!(preempted["expired_per_1000_packets"] > 0.0, "{preempted:?}");
        // All connections expire at once, and then as many as ever.
        let expired = CONNECTIONS as f64 / (LEAST * BURST) as f64 * 1e3;
        assert!(preempted["expired_per_1000_packets"] < expired + 100.0, "{preempted:?}");
    }

    #[test]
    fn timers_that_do_wrong_are_found_out() {
        for (fault, words) in [
            (Fault::Loses, "silent connections have not expired"),
            (Fault::Ignores, "a connection with traffic has expired"),
            (Fault::Sleeps, "a poll late"),
        ] {
            let why = run(Choice::Uniform, fault).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn the_ring_holds_what_it_has_places_for() {
        let mut course = Course { arrival: 1_000_000, finished: 0 };
        assert_eq!(course.drop_what_has_no_place(1_000_000 + RING * GAP), 0);
        assert_eq!(course.drop_what_has_no_place(1_000_000 + (RING + 5) * GAP), 5);
        assert_eq!(course.arrival, 1_000_000 + 5 * GAP);
    }
}
