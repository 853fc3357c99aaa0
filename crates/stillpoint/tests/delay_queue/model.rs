//! A queue beside a sorted map: what comes out, in which order, and who is woken. `STILLPOINT_DELAY_ROUNDS=N` multiplies the number
//! of sequences by N.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use stillpoint::timer::delay_queue::{DelayQueue, InsertError};
use stillpoint::timer::Key;

use super::mock::{queue, Call, Mock};

#[derive(Debug, Clone, Copy)]
enum Step {
    Insert(u64),
    /// A time that has passed, this long ago.
    InsertPast(u64),
    Reset(prop::sample::Index, u64),
    Remove(prop::sample::Index),
    Advance(u64),
    /// Just to the next deadline, or one nanosecond before it.
    AdvanceToNext(bool),
    TryNext,
    Peek,
    Call,
    Poll(prop::sample::Index),
    Drop(prop::sample::Index),
    Clear,
    Close,
}

/// Nanoseconds: most of them few.
fn time() -> impl Strategy<Value = u64> {
    (0..46_u32, any::<u64>()).prop_map(|(bits, time)| time & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        8 => time().prop_map(Step::Insert),
        1 => time().prop_map(Step::InsertPast),
        3 => (which(), time()).prop_map(|(which, delay)| Step::Reset(which, delay)),
        2 => which().prop_map(Step::Remove),
        3 => time().prop_map(Step::Advance),
        4 => any::<bool>().prop_map(Step::AdvanceToNext),
        4 => Just(Step::TryNext),
        1 => Just(Step::Peek),
        3 => Just(Step::Call),
        6 => which().prop_map(Step::Poll),
        2 => which().prop_map(Step::Drop),
        1 => (0..40_u8).prop_map(|at| if at == 0 { Step::Clear } else { Step::TryNext }),
        1 => (0..80_u8).prop_map(|at| if at == 0 { Step::Close } else { Step::Peek }),
    ]
}

/// An item that the queue must have.
#[derive(Debug, Clone, Copy)]
struct Promise {
    key: Key,
    /// In ticks.
    deadline: u64,
    turn: u64,
    /// Whether it was due when it was inserted or reset.
    late: bool,
}

struct Waiting<'q> {
    call: Call<'q, u64>,
    /// How often it had been woken when it was polled last.
    seen: usize,
}

struct Pair<'q> {
    queue: &'q DelayQueue<u64>,
    mock: Mock,
    promises: BTreeMap<u64, Promise>,
    /// Those that were due at the last look.
    known: BTreeSet<u64>,
    gone: Vec<Key>,
    turns: u64,
    calls: Vec<Waiting<'q>>,
    closed: bool,
    /// The wake-ups so far, and how many there may have been.
    rings: usize,
    needs: usize,
}

fn ticks(time: Duration) -> u64 {
    (time.as_nanos() as u64).div_ceil(1_024)
}

impl<'q> Pair<'q> {
    fn new(queue: &'q DelayQueue<u64>, mock: Mock) -> Self {
        let (promises, known) = (BTreeMap::new(), BTreeSet::new());
        Self {
            queue,
            mock,
            promises,
            known,
            gone: Vec::new(),
            turns: 0,
            calls: Vec::new(),
            closed: false,
            rings: 0,
            needs: 0,
        }
    }

    fn tick(&self) -> u64 {
        self.mock.passed().as_nanos() as u64 / 1_024
    }

    fn earliest(&self) -> Option<u64> {
        self.promises.values().map(|promise| promise.deadline).min()
    }

    fn arm(&mut self, number: u64, key: Key, at: Duration) {
        let deadline = ticks(at);
        // Only what is due earlier than all before may wake somebody.
        let is_first = self.earliest().is_none_or(|earliest| deadline < earliest);
        self.needs += usize::from(is_first && !self.calls.is_empty());
        let (turn, late) = (self.turns, deadline <= self.tick());
        self.turns += 1;
        self.known.remove(&number);
        self.promises.insert(number, Promise { key, deadline, turn, late });
    }

    fn insert(&mut self, number: u64, at: Duration) {
        match self.queue.insert_at(number, self.mock.begin() + at) {
            Ok(key) => self.arm(number, key, at),
            Err(error) => assert!(self.closed && error == InsertError::Closed(number)),
        }
    }

    fn one(&self, which: prop::sample::Index) -> Option<u64> {
        let numbers: Vec<u64> = self.promises.keys().copied().collect();
        (!numbers.is_empty()).then(|| *which.get(&numbers))
    }

    fn is_due(&self, promise: &Promise) -> bool {
        promise.deadline <= self.tick()
    }

    /// The queue has handed out this item, or has said that nothing is due.
    fn got(&mut self, number: Option<u64>) {
        if self.known.is_empty() {
            // It has looked at the clock.
            let due = self.promises.iter().filter(|(_, promise)| self.is_due(promise));
            self.known = due.map(|(number, _)| *number).collect();
        }
        let Some(number) = number else {
            assert!(self.promises.values().all(|promise| !self.is_due(promise)), "something is due");
            return;
        };
        let got = self.promises.remove(&number).expect("it was in the queue");
        assert!(self.is_due(&got), "{number} is early");
        assert!(self.known.remove(&number), "{number} has come before those of an earlier look");
        let known = self.known.iter().map(|number| &self.promises[number]);
        let mut equal = known.filter(|other| !other.late && other.deadline == got.deadline);
        assert!(got.late || equal.all(|other| other.turn > got.turn), "{number} is not the first");
        self.gone.push(got.key);
    }

    fn poll(&mut self, at: usize) {
        let waiting = &mut self.calls[at];
        let rung = waiting.call.rung();
        let polled = waiting.call.poll();
        waiting.seen = rung;
        match polled {
            Poll::Pending => self.got(None),
            Poll::Ready(number) => {
                if number.is_some() {
                    self.got(number);
                } else {
                    assert!(self.closed && self.promises.is_empty(), "no end");
                }
                self.leave(at);
            }
        }
    }

    /// Another call is woken at most.
    fn leave(&mut self, at: usize) {
        let call = self.calls.remove(at);
        self.rings += call.call.rung();
        self.needs += 1;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(delay) => self.insert(self.turns, self.mock.passed() + Duration::from_nanos(delay)),
            Step::InsertPast(ago) => {
                self.insert(self.turns, self.mock.passed().saturating_sub(Duration::from_nanos(ago)));
            }
            Step::Reset(which, delay) => {
                let Some(number) = self.one(which) else { return };
                let key = self.promises[&number].key;
                assert!(self.queue.reset(&key, Duration::from_nanos(delay)));
                self.promises.remove(&number);
                self.arm(number, key, self.mock.passed() + Duration::from_nanos(delay));
            }
            Step::Remove(which) => {
                let Some(number) = self.one(which) else { return };
                let key = self.promises.remove(&number).unwrap().key;
                self.known.remove(&number);
                assert_eq!(self.queue.remove(&key), Some(number));
                self.gone.push(key);
            }
            Step::Advance(time) => self.mock.advance(Duration::from_nanos(time)),
            Step::AdvanceToNext(just_before) => {
                let Some(next) = self.earliest() else { return };
                let time = (next * 1_024).saturating_sub(u64::from(just_before));
                self.mock.set(self.mock.passed().max(Duration::from_nanos(time)));
            }
            Step::TryNext => {
                let item = self.queue.try_next();
                if let Some(item) = &item {
                    let promise = self.promises[item.get_ref()];
                    assert_eq!(
                        (item.key(), ticks(item.deadline() - self.mock.begin())),
                        (promise.key, promise.deadline)
                    );
                }
                self.got(item.map(|item| item.into_inner()));
            }
            Step::Peek => {
                let peeked = self.queue.peek();
                let found = self.promises.values().find(|promise| Some(promise.key) == peeked);
                assert_eq!(found.map(|promise| promise.deadline), self.earliest());
            }
            Step::Call => {
                self.calls.push(Waiting { call: Call::new(self.queue, &self.mock), seen: 0 });
                self.poll(self.calls.len() - 1);
            }
            Step::Poll(which) if !self.calls.is_empty() => self.poll(which.index(self.calls.len())),
            Step::Drop(which) if !self.calls.is_empty() => self.leave(which.index(self.calls.len())),
            Step::Poll(_) | Step::Drop(_) => {}
            Step::Clear => {
                self.queue.clear();
                self.promises.clear();
                self.known.clear();
            }
            Step::Close => {
                self.queue.close();
                self.needs += usize::from(!self.closed);
                self.closed = true;
            }
        }
        self.check();
    }

    /// Somebody is awake, or wakes up by itself in time; and nobody was woken without a need.
    fn check(&self) {
        assert_eq!((self.queue.len(), self.queue.is_closed()), (self.promises.len(), self.closed));
        if let Some(key) = self.gone.last() {
            assert_eq!((self.queue.deadline(key), self.queue.remove(key)), (None, None));
        }
        let rings = self.rings + self.calls.iter().map(|waiting| waiting.call.rung()).sum::<usize>();
        assert!(rings <= self.needs, "{rings} wake-ups, and {} needs", self.needs);
        let is_awake = |waiting: &&Waiting<'_>| waiting.call.rung() > waiting.seen;
        let awake = self.calls.iter().filter(is_awake).count();
        assert!(awake <= 1, "{awake} are awake");
        let has_ended = self.closed && self.promises.is_empty();
        if self.calls.is_empty() || awake == 1 {
            return;
        }
        assert!(!has_ended, "the end wakes nobody");
        let Some(earliest) = self.earliest() else { return };
        let sleeps = self.calls.iter().filter_map(|waiting| waiting.call.asleep_until());
        let sleeps = sleeps.map(|at| ticks(at - self.mock.begin())).min();
        assert!(sleeps.is_some_and(|until| until <= earliest), "{sleeps:?}, and {earliest} is due");
    }

    /// What is left comes out.
    fn end(mut self) {
        while let Some(earliest) = self.earliest() {
            self.mock.set(self.mock.passed().max(Duration::from_nanos(earliest * 1_024)));
            self.step(Step::TryNext);
        }
        self.step(Step::Close);
        while !self.calls.is_empty() {
            self.poll(0);
            self.check();
        }
    }
}

fn rounds() -> u32 {
    std::env::var("STILLPOINT_DELAY_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number of rounds"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 * rounds() },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_queue_does_as_a_sorted_map(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 200 })) {
        let (queue, mock) = queue();
        let mut pair = Pair::new(&queue, mock);
        for step in steps {
            pair.step(step);
        }
        pair.end();
    }
}
