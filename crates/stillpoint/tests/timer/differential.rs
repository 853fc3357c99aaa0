//! A wheel, compared with a sorted map: millions of random steps, and short sequences that proptest shrinks.
//! `STILLPOINT_TEST_ROUNDS=N` multiplies their number by N.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use proptest::prelude::*;
use stillpoint::timer::{Expired, Key, Limit, Schedule, Wheel, WheelStats};

use crate::rounds::rounds;

/// When a timer must fire.
#[derive(Debug, Clone, Copy)]
struct Promise {
    key: Key,
    deadline: u64,
    /// The latest time at which it must fire, in a poll that finishes.
    latest: u64,
    period: u64,
    coarse: bool,
    /// The order of the additions and resets.
    turn: u64,
    /// Whether the timer was armed within a poll, when other timers may not have been moved yet.
    beaten: bool,
}

/// The map, whose keys are the numbers in the timers, and the wheel.
struct Pair {
    wheel: Wheel<u64>,
    promises: BTreeMap<u64, Promise>,
    gone: Vec<Key>,
    numbers: u64,
    turns: u64,
    /// Whether no limit has delayed a move so far.
    in_order: bool,
}

/// A timer that has fired.
#[derive(Debug, Clone, Copy)]
struct Fired {
    number: u64,
    deadline: u64,
    missed: u64,
    periodic: bool,
    now: u64,
}

impl Fired {
    fn of(wheel: &Wheel<u64>, expired: &mut Expired<'_, u64>) -> Self {
        Self {
            number: *expired.value(),
            deadline: expired.deadline(),
            missed: expired.missed(),
            periodic: expired.is_periodic(),
            now: wheel.now(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Add {
        delay: u64,
    },
    AddPast {
        before: u64,
    },
    AddCoarse {
        delay: u64,
    },
    AddPeriodic {
        delay: u64,
        period: u64,
        coarse: bool,
    },
    Cancel {
        which: u64,
    },
    CancelGone {
        which: u64,
    },
    Reset {
        which: u64,
        delay: u64,
    },
    Poll {
        delta: u64,
        expiries: usize,
        moves: usize,
    },
    PollAll {
        delta: u64,
    },
    Pop {
        delta: u64,
    },
    /// A poll whose first callback polls.
    Nested {
        delta: u64,
        inner: u64,
        expiries: usize,
        moves: usize,
    },
    GoBack {
        delta: u64,
    },
    SetTime {
        now: u64,
    },
    Shrink,
    Look,
}

impl Pair {
    fn new(now: u64) -> Self {
        let wheel = Wheel::new(now);
        Self { wheel, promises: BTreeMap::new(), gone: Vec::new(), numbers: 0, turns: 0, in_order: true }
    }

    fn latest(&self, deadline: u64, coarse: bool) -> u64 {
        Self::latest_at(self.wheel.now(), deadline, coarse)
    }

    /// The latest time at which a timer armed at `now` fires.
    fn latest_at(now: u64, deadline: u64, coarse: bool) -> u64 {
        let delay = deadline.saturating_sub(now);
        // The product is computed in parts, since eight times the delay may overflow.
        deadline.saturating_add(if coarse { delay / 63 * 8 + delay % 63 * 8 / 63 } else { 0 })
    }

    fn promise(&mut self, key: Key, deadline: u64, period: u64, coarse: bool) {
        let latest = self.latest(deadline, coarse);
        self.turns += 1;
        let promise = Promise { key, deadline, latest, period, coarse, turn: self.turns, beaten: false };
        self.promises.insert(self.numbers, promise);
        self.numbers += 1;
    }

    fn choose(&self, which: u64) -> Option<(u64, Promise)> {
        let from = which % self.numbers.max(1);
        let around = self.promises.range(from..).chain(self.promises.range(..from));
        around.map(|(number, promise)| (*number, *promise)).next()
    }

    fn step(&mut self, step: Step) {
        let now = self.wheel.now();
        match step {
            Step::Add { delay } => {
                let key = self.wheel.add(Schedule::after(delay), self.numbers).unwrap();
                self.promise(key, now.saturating_add(delay), 0, false);
            }
            Step::AddPast { before } => {
                let deadline = now.saturating_sub(before);
                let key = self.wheel.add(deadline, self.numbers).unwrap();
                self.promise(key, deadline, 0, false);
            }
            Step::AddCoarse { delay } => {
                let deadline = now.saturating_add(delay);
                let key = self.wheel.add(Schedule::at(deadline).coarse(), self.numbers).unwrap();
                self.promise(key, deadline, 0, true);
            }
            Step::AddPeriodic { delay, period, coarse } => {
                let deadline = now.saturating_add(delay);
                let every = NonZeroU64::new(period).unwrap();
                let schedule = Schedule::at(deadline).every(every);
                let schedule = if coarse { schedule.coarse() } else { schedule };
                let key = self.wheel.add(schedule, self.numbers).unwrap();
                self.promise(key, deadline, period, coarse);
            }
            Step::Cancel { which } => {
                if let Some((number, promise)) = self.choose(which) {
                    assert_eq!(self.wheel.deadline(promise.key), Some(promise.deadline));
                    assert_eq!(self.wheel.cancel(promise.key), Some(number));
                    self.promises.remove(&number);
                    self.gone.push(promise.key);
                }
            }
            Step::CancelGone { which } => {
                if let Some(key) = self.gone.get(which as usize % self.gone.len().max(1)) {
                    assert_eq!(self.wheel.cancel(*key), None);
                    assert!(!self.wheel.reset(*key, now) && self.wheel.get(*key).is_none());
                }
            }
            Step::Reset { which, delay } => {
                if let Some((number, promise)) = self.choose(which) {
                    let deadline = now.saturating_add(delay);
                    assert!(self.wheel.reset(promise.key, deadline));
                    let latest = self.latest(deadline, promise.coarse);
                    self.turns += 1;
                    let promise = Promise { deadline, latest, turn: self.turns, beaten: false, ..promise };
                    self.promises.insert(number, promise);
                }
            }
            Step::Poll { delta, expiries, moves } => {
                self.poll(now.saturating_add(delta), Limit { expiries, moves });
            }
            Step::PollAll { delta } => self.poll(now.saturating_add(delta), Limit::NONE),
            Step::Pop { delta } => self.pop(now.saturating_add(delta)),
            Step::Nested { delta, inner, expiries, moves } => {
                self.nested(now.saturating_add(delta), inner, Limit { expiries, moves });
            }
            Step::SetTime { now } => self.set_time(now),
            Step::Shrink => {
                self.wheel.shrink();
                let stats = self.wheel.stats();
                assert!(stats.capacity >= stats.timers && (stats.timers > 0 || stats.capacity == 0));
            }
            Step::GoBack { delta } => {
                let before = self.wheel.stats().time_went_back;
                self.poll(now.saturating_sub(delta), Limit::NONE);
                assert_eq!(self.wheel.now(), now);
                let expected = before + u64::from(delta > 0 && now > 0);
                assert_eq!(self.wheel.stats().time_went_back, expected);
            }
            Step::Look => {
                let mut keys: Vec<_> = self.promises.values().map(|promise| promise.key).collect();
                keys.dedup();
                assert_eq!(keys.len(), self.wheel.len());
            }
        }
        assert_eq!(self.wheel.len(), self.promises.len());
        match self.wheel.next_deadline() {
            None => assert!(self.promises.is_empty()),
            Some(next) => {
                assert!(next >= self.wheel.now());
                let earliest = self.promises.values().map(|promise| promise.deadline).min().unwrap();
                assert!(next <= earliest.max(self.wheel.now()) || self.promises.values().any(|p| p.coarse));
            }
        }
    }

    fn poll(&mut self, now: u64, limit: Limit) {
        let mut fired = Vec::new();
        let before = self.wheel.stats();
        let progress = self.wheel.poll(now, limit, |wheel, mut expired| {
            assert!(wheel.get(expired.key()).is_none());
            fired.push(Fired::of(wheel, &mut expired));
        });
        assert_eq!(progress.expired(), fired.len());
        assert!(fired.len() <= limit.expiries);
        self.check_moves(before, limit.moves);
        self.in_order &= limit == Limit::NONE || progress.is_done();
        self.check(&fired, progress.is_done());
    }

    /// Two polls, one in the other, and their common limits.
    fn nested(&mut self, now: u64, inner: u64, limit: Limit) {
        let fired = std::cell::RefCell::new(Vec::new());
        let before = self.wheel.stats();
        let mut polled = false;
        self.in_order = false;
        let progress = self.wheel.poll(now, limit, |wheel, mut expired| {
            let value = Fired::of(wheel, &mut expired);
            fired.borrow_mut().push(value);
            // The inner poll would skip a timer whose value is lent.
            if !polled && !expired.is_periodic() {
                polled = true;
                let now = wheel.now().saturating_add(inner);
                let _ = wheel.poll(now, limit, |wheel, mut expired| {
                    fired.borrow_mut().push(Fired::of(wheel, &mut expired));
                });
            }
        });
        let fired = fired.into_inner();
        assert!(fired.len() <= limit.expiries.saturating_mul(2));
        // Timers that were armed in the first poll may be in any of the twelve levels.
        let moved = self.wheel.stats().moved - before.moved;
        assert!(moved <= (limit.moves as u64).saturating_mul(2 * 12), "two polls have moved {moved}");
        self.check(&fired, progress.is_done());
    }

    fn check_moves(&self, before: WheelStats, each: usize) {
        let moved = self.wheel.stats().moved - before.moved;
        assert!(
            moved <= (each as u64).saturating_mul(u64::from(before.levels)),
            "a poll has moved {moved}: {before:?}"
        );
    }

    fn set_time(&mut self, now: u64) {
        self.wheel.set_time(now);
        assert_eq!(self.wheel.now(), now);
        self.in_order = false;
        for number in self.promises.keys().copied().collect::<Vec<_>>() {
            let promise = self.promises[&number];
            assert_eq!(self.wheel.deadline(promise.key), Some(promise.deadline));
            let latest = self.latest(promise.deadline, promise.coarse);
            self.promises.insert(number, Promise { latest, ..promise });
        }
    }

    fn pop(&mut self, now: u64) {
        let mut fired = Vec::new();
        let before = self.wheel.stats();
        self.wheel.advance(now);
        self.check_moves(before, 64);
        while let Some(popped) = self.wheel.pop() {
            let periodic = popped.value.is_none();
            let number = popped.value.unwrap_or_else(|| *self.wheel.get(popped.key).unwrap());
            let (deadline, missed, now) = (popped.deadline, popped.missed, self.wheel.now());
            fired.push(Fired { number, deadline, missed, periodic, now });
        }
        let done = self.wheel.next_deadline().is_none_or(|next| next > self.wheel.now());
        self.in_order &= done;
        self.check(&fired, done);
    }

    fn check(&mut self, fired: &[Fired], is_done: bool) {
        let mut turns = BTreeMap::new();
        let mut beats_due = BTreeSet::new();
        for &Fired { number, deadline, missed, periodic, now } in fired {
            let promise = self.promises.remove(&number).expect("the timer was armed");
            beats_due.remove(&number);
            assert!(deadline <= now, "early: {promise:?} at {now}");
            assert_eq!(deadline, promise.deadline);
            assert_eq!(periodic, promise.period != 0 && deadline != u64::MAX);
            // Timers with the same deadline fire in the order in which they were armed, if polls finish.
            if !promise.coarse && !promise.beaten && self.in_order {
                let before = turns.insert(deadline, promise.turn);
                assert!(
                    before.is_none_or(|before| before < promise.turn),
                    "armed before one that has fired already: {promise:?}"
                );
            }
            if !periodic {
                self.gone.push(promise.key);
                continue;
            }
            let expected = (now - deadline) / promise.period;
            assert_eq!(missed, expected);
            let next = deadline.saturating_add(promise.period.saturating_mul(missed.saturating_add(1)));
            if next <= now {
                beats_due.insert(number);
            }
            let latest = Self::latest_at(now, next, promise.coarse);
            let promise = Promise { deadline: next, latest, beaten: true, ..promise };
            self.promises.insert(number, promise);
        }
        if is_done {
            let now = self.wheel.now();
            assert!(beats_due.is_empty(), "a beat is due, and the poll says that it has finished");
            let late = self.promises.values().find(|promise| promise.latest <= now);
            assert!(late.is_none(), "not fired at {now}: {late:?}");
        }
    }

    fn end(mut self) {
        let mut left: Vec<u64> = self.wheel.drain().collect();
        left.sort_unstable();
        assert!(left.into_iter().eq(self.promises.into_keys()));
        assert!(self.wheel.is_empty() && self.wheel.next_deadline().is_none());
    }
}

/// Ticks of all orders of magnitude.
fn ticks() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..200u64,
        2 => 0..20_000u64,
        2 => (0..64u32, any::<u64>()).prop_map(|(bits, number)| number >> bits),
        1 => (0..64u32, 0..3u64).prop_map(|(bit, more)| (1u64 << bit).saturating_add(more).saturating_sub(1)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => ticks().prop_map(|delay| Step::Add { delay }),
        1 => ticks().prop_map(|before| Step::AddPast { before }),
        3 => ticks().prop_map(|delay| Step::AddCoarse { delay }),
        2 => (ticks(), 1..500u64, any::<bool>())
            .prop_map(|(delay, period, coarse)| Step::AddPeriodic { delay, period, coarse }),
        4 => any::<u64>().prop_map(|which| Step::Cancel { which }),
        1 => any::<u64>().prop_map(|which| Step::CancelGone { which }),
        3 => (any::<u64>(), ticks()).prop_map(|(which, delay)| Step::Reset { which, delay }),
        2 => (ticks(), 0..5usize, 0..5usize).prop_map(
            |(delta, expiries, moves)| Step::Poll { delta, expiries, moves }
        ),
        4 => ticks().prop_map(|delta| Step::PollAll { delta }),
        2 => ticks().prop_map(|delta| Step::Pop { delta }),
        1 => (ticks(), ticks(), 0..9usize, 0..9usize).prop_map(
            |(delta, inner, expiries, moves)| Step::Nested { delta, inner, expiries, moves }
        ),
        1 => (0..100u64).prop_map(|delta| Step::GoBack { delta }),
        1 => beginning().prop_map(|now| Step::SetTime { now }),
        1 => Just(Step::Shrink),
        1 => Just(Step::Look),
    ]
}

/// Start times, some of them just before the end of a level.
fn beginning() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        (0..11u32, 0..100u64).prop_map(|(level, before)| (1u64 << (6 * level)).saturating_sub(before)),
        (0..10_000u64).prop_map(|before| u64::MAX - before),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 500 * rounds() as u32 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_wheel_does_as_a_sorted_map(
        now in beginning(),
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 300 }),
    ) {
        let mut pair = Pair::new(now);
        for step in steps {
            pair.step(step);
        }
        pair.end();
    }
}

#[test]
fn long_runs_of_random_steps() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (rounds, steps) = if cfg!(miri) { (1, 100) } else { (12 * rounds(), 60_000) };
    for round in 0..rounds {
        let mut pair = Pair::new([0, u64::MAX >> 1, (1 << 48) - 1_000, random() >> 8][round % 4]);
        for _ in 0..steps {
            // Long delays are rare, so that the time does not overflow. About as many timers are added as removed.
            let magnitude = [6, 10, 14, 18, 24, 40][random() as usize % 6];
            let ticks = random() & ((1 << magnitude) - 1);
            let short = random() % 300;
            pair.step(match random() % 26 {
                0..=7 => Step::Add { delay: ticks },
                8 => Step::AddPast { before: short },
                9 | 10 => Step::AddCoarse { delay: ticks },
                11 => Step::AddPeriodic { delay: ticks, period: 1 + short, coarse: ticks % 2 == 0 },
                12..=15 => Step::Cancel { which: random() },
                16 => Step::CancelGone { which: random() },
                17 | 18 => Step::Reset { which: random(), delay: ticks },
                19 if round % 2 == 0 => {
                    Step::Poll { delta: short, expiries: short as usize % 7, moves: ticks as usize % 7 }
                }
                20 | 21 => Step::PollAll { delta: short },
                // These steps end the checks of the order, so half of the rounds do without them.
                22 if round % 4 == 3 => Step::Nested {
                    delta: short,
                    inner: ticks,
                    expiries: short as usize % 9,
                    moves: ticks as usize % 9,
                },
                23 if round % 4 == 3 && ticks % 16 == 0 => {
                    Step::SetTime { now: [random(), random() >> 20, u64::MAX - ticks][short as usize % 3] }
                }
                24 => Step::Shrink,
                25 => Step::Pop { delta: if ticks % 8 == 0 { ticks } else { short } },
                _ => Step::GoBack { delta: short },
            });
            if pair.promises.len() > 400 {
                pair.step(Step::PollAll { delta: 1 << 30 });
                let numbers: Vec<_> = pair.promises.keys().copied().collect();
                numbers.iter().for_each(|&which| pair.step(Step::Cancel { which }));
            }
        }
        pair.end();
    }
}
