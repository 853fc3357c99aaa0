//! Callbacks that change the wheel, compared with a sorted map: they add, cancel, reset and arm timers, including their
//! own and those that are due in the same poll.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use stillpoint::timer::shared::{ArmError, Cause, Event, Outcome, SharedTimer, TimerService};
use stillpoint::timer::{Expired, Key, Limit, Progress, Schedule, Wheel};

const ROUNDS: u64 = if cfg!(miri) { 2 } else { 200 };
const STEPS: u64 = if cfg!(miri) { 60 } else { 2_000 };

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A delay that is mostly short, so that many timers are due in one poll, and that sometimes goes beyond a few
    /// levels.
    fn delay(&mut self) -> u64 {
        let magnitude = [3, 6, 6, 8, 13, 20][self.below(6) as usize];
        self.below(1 << magnitude)
    }
}

#[derive(Debug, Clone, Copy)]
struct Armed {
    key: Key,
    deadline: u64,
    period: u64,
    /// When the timer was last armed. Polls have even numbers, and the times between them odd numbers.
    poll: u64,
}

/// The expected behaviour of a wheel, by the numbers in its timers.
struct Model {
    random: Random,
    timers: BTreeMap<u64, Armed>,
    gone: Vec<Key>,
    numbers: u64,
    poll: u64,
    fired: usize,
}

impl Model {
    /// Chooses a timer, but never the one whose callback runs: that is not in the map meanwhile.
    fn choose(&mut self) -> Option<(u64, Armed)> {
        let from = self.random.below(self.numbers.max(1));
        let mut around = self.timers.range(from..).chain(self.timers.range(..from));
        around.next().map(|(number, armed)| (*number, *armed))
    }

    /// One random operation, in a callback or between polls.
    fn act(&mut self, wheel: &mut Wheel<u64>) {
        let now = wheel.now();
        match self.random.below(10) {
            0..=3 => {
                // Some deadlines are in the past.
                let deadline = (now + self.random.delay()).saturating_sub(self.random.below(10));
                let period = if self.random.below(4) == 0 { 1 + self.random.delay() } else { 0 };
                let schedule = Schedule::at(deadline);
                let schedule = NonZeroU64::new(period).map_or(schedule, |period| schedule.every(period));
                let key = wheel.add(schedule, self.numbers).unwrap();
                let poll = self.poll;
                self.timers.insert(self.numbers, Armed { key, deadline, period, poll });
                self.numbers += 1;
            }
            4..=6 => {
                if let Some((number, armed)) = self.choose() {
                    assert_eq!(wheel.deadline(armed.key), Some(armed.deadline));
                    assert_eq!(wheel.cancel(armed.key), Some(number));
                    self.timers.remove(&number);
                    self.gone.push(armed.key);
                }
            }
            7 | 8 => {
                if let Some((number, armed)) = self.choose() {
                    let deadline = (now + self.random.delay()).saturating_sub(self.random.below(10));
                    assert!(wheel.reset(armed.key, deadline));
                    self.timers.insert(number, Armed { deadline, poll: self.poll, ..armed });
                }
            }
            _ => {
                if let Some(key) = self.gone.last() {
                    assert_eq!((wheel.cancel(*key), wheel.reset(*key, now)), (None, false));
                }
            }
        }
    }

    /// Checks that a timer had to fire, and does something in its callback.
    fn fired(&mut self, wheel: &mut Wheel<u64>, mut expired: Expired<'_, u64>) {
        let number = *expired.value();
        let armed = self.timers.remove(&number).expect("neither cancelled nor fired before");
        let now = wheel.now();
        assert_eq!((expired.key(), expired.deadline()), (armed.key, armed.deadline));
        assert!(armed.deadline <= now, "early: {armed:?} at {now}");
        assert!(armed.poll < self.poll, "armed in the poll in which it has fired: {armed:?}");
        assert_eq!(expired.is_periodic(), armed.period != 0);
        self.fired += 1;
        assert!(wheel.get(armed.key).is_none(), "its value is lent");
        if armed.period == 0 {
            assert_eq!((wheel.cancel(armed.key), wheel.reset(armed.key, now + 1)), (None, false));
            self.gone.push(armed.key);
        }
        let next = (armed.period != 0).then(|| {
            let missed = (now - armed.deadline) / armed.period;
            assert_eq!(expired.missed(), missed);
            let next = armed.deadline + armed.period * (missed + 1);
            assert_eq!(wheel.deadline(armed.key), Some(next), "armed again before its callback");
            self.beat(wheel, armed.key, next)
        });
        for _ in 0..self.random.below(3) {
            self.act(wheel);
        }
        if let Some(Some(deadline)) = next {
            self.timers.insert(number, Armed { deadline, poll: self.poll, ..armed });
        }
    }

    /// The callback of a periodic timer keeps, resets or cancels it. Returns when it fires next.
    fn beat(&mut self, wheel: &mut Wheel<u64>, own: Key, next: u64) -> Option<u64> {
        match self.random.below(4) {
            0 => {
                assert_eq!(wheel.cancel(own), None, "the timer has fired");
                assert!(wheel.deadline(own).is_none());
                self.gone.push(own);
                None
            }
            1 => {
                let deadline = wheel.now() + self.random.delay();
                assert!(wheel.reset(own, deadline));
                Some(deadline)
            }
            _ => Some(next),
        }
    }
}

#[test]
fn a_wheel_whose_callbacks_act_does_as_a_sorted_map() {
    for round in 0..ROUNDS {
        let begin = [0, (1 << 18) - 500, (1 << 48) - 5_000, 77][round as usize % 4];
        let mut wheel = Wheel::new(begin);
        let random = Random(88_172_645_463_325_252 ^ (round << 32));
        let mut model =
            Model { random, timers: BTreeMap::new(), gone: Vec::new(), numbers: 0, poll: 1, fired: 0 };
        for _ in 0..STEPS {
            // Enough polls to keep the number of timers low.
            if model.random.below(4) != 0 && model.timers.len() < 60 {
                model.act(&mut wheel);
            } else {
                poll(&mut model, &mut wheel);
            }
            assert_eq!(wheel.len(), model.timers.len());
        }
        let mut left: Vec<u64> = wheel.drain().collect();
        left.sort_unstable();
        assert!(left.into_iter().eq(model.timers.into_keys()));
    }
}

fn poll(model: &mut Model, wheel: &mut Wheel<u64>) {
    let now = wheel.now() + model.random.delay();
    let limit = match model.random.below(3) {
        0 => Limit::expiries(model.random.below(6) as usize).moves(model.random.below(6) as usize),
        _ => Limit::NONE,
    };
    model.poll += 1;
    model.fired = 0;
    let progress = wheel.poll(now, limit, |wheel, expired| model.fired(wheel, expired));
    model.poll += 1;
    assert_eq!(progress.expired(), model.fired);
    assert!(model.fired <= limit.expiries);
    let due = model.timers.values().filter(|armed| armed.deadline <= now);
    if limit == Limit::NONE {
        // All due timers have fired, except those armed in the poll itself.
        let mut rest = due.clone();
        assert!(rest.all(|armed| armed.poll + 1 == model.poll), "{:?} at {now}", model.timers);
        assert_eq!(progress.is_done(), due.count() == 0);
    } else if progress.is_done() {
        assert_eq!(due.count(), 0);
    }
}

/// The expected state of a shared timer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Rest(Outcome<u64>),
    Armed { deadline: u64, period: u64, value: u64, poll: u64 },
    Revoked { value: u64 },
    Running { stopped: bool },
}

struct Shared {
    random: Random,
    timers: Vec<SharedTimer<u64>>,
    states: Vec<State>,
    mailbox: stillpoint::timer::shared::Mailbox<u64>,
    poll: u64,
    values: u64,
}

impl Shared {
    /// One random operation, in a callback or between polls. Each operation has one right answer.
    fn act(&mut self, service: &mut TimerService<u64>) {
        let which = self.random.below(self.timers.len() as u64) as usize;
        let (timer, state) = (self.timers[which].clone(), self.states[which]);
        match self.random.below(8) {
            0..=3 => {
                let deadline = (service.now() + self.random.delay()).saturating_sub(self.random.below(5));
                let period = if self.random.below(3) == 0 { 1 + self.random.delay() } else { 0 };
                let schedule = Schedule::at(deadline);
                let schedule = NonZeroU64::new(period).map_or(schedule, |period| schedule.every(period));
                let by_mail = self.random.below(2) == 0;
                // The value identifies the timer.
                self.values += self.timers.len() as u64;
                let value = self.values + which as u64;
                let result = match by_mail {
                    true => self.mailbox.add(&timer, schedule, value),
                    false => service.arm(&timer, schedule, value),
                };
                let expected = match state {
                    State::Rest(_) => Ok(()),
                    State::Running { stopped: false } if !by_mail => Ok(()),
                    State::Armed { .. } => Err(ArmError::Armed(value)),
                    State::Running { .. } | State::Revoked { .. } => Err(ArmError::Busy(value)),
                };
                // A full mailbox is detected first.
                let full = by_mail && matches!(result, Err(ArmError::Full(_)));
                if !full {
                    assert_eq!(result, expected, "{state:?}");
                    if expected.is_ok() {
                        self.states[which] = State::Armed { deadline, period, value, poll: self.poll };
                    }
                }
            }
            4..=6 => {
                let (expected, next) = match state {
                    State::Rest(outcome) => (outcome, state),
                    State::Armed { value, .. } => (Outcome::Cancelled(value), State::Rest(Outcome::Gone)),
                    State::Revoked { .. } => (Outcome::Gone, state),
                    State::Running { .. } => (Outcome::Running, State::Running { stopped: true }),
                };
                assert_eq!(timer.cancel(), expected);
                self.states[which] = next;
            }
            _ => {
                if let State::Armed { value, .. } = state {
                    assert_eq!(timer.revoke(), Outcome::Cancelled(()));
                    self.states[which] = State::Revoked { value };
                }
            }
        }
    }

    fn called(&mut self, service: &mut TimerService<u64>, mut event: Event<'_, u64>) {
        let value = *event.value();
        let which = value as usize % self.timers.len();
        assert!(event.timer().is_some_and(|timer| timer.is_same(&self.timers[which])));
        let state = self.states[which];
        if event.cause() == Cause::Revoked {
            assert_eq!(state, State::Revoked { value });
            self.states[which] = State::Rest(Outcome::Gone);
            self.act(service);
            return;
        }
        let State::Armed { deadline, period, value: armed, poll } = state else {
            panic!("the timer was not armed: {state:?}");
        };
        assert_eq!((event.deadline(), value), (deadline, armed));
        assert!(deadline <= service.now() && poll < self.poll, "fired too early: {state:?}");
        self.states[which] = State::Running { stopped: false };
        for _ in 0..self.random.below(4) {
            self.act(service);
        }
        if let State::Running { stopped } = self.states[which] {
            self.states[which] = if period == 0 || stopped {
                State::Rest(Outcome::Fired)
            } else {
                let deadline = deadline + period * (event.missed() + 1);
                State::Armed { deadline, period, value, poll: self.poll }
            };
        }
    }

    fn run(&mut self, service: &mut TimerService<u64>) {
        let now = service.now() + self.random.delay();
        // Continues until all messages from the callbacks of revoked timers are processed.
        while service.process(usize::MAX, |service, event| self.called(service, event)) != Progress::Done(0) {
        }
        self.poll += 1;
        let _ = service.manage(now, Limit::NONE, |service, event| self.called(service, event));
        self.poll += 1;
        for state in &self.states {
            match *state {
                State::Armed { deadline, poll, .. } => {
                    assert!(deadline > now || poll + 1 == self.poll, "not fired at {now}: {state:?}");
                }
                // A timer revoked in the poll is ended in the next one.
                State::Revoked { .. } | State::Rest(_) => {}
                State::Running { .. } => panic!("the state is `Running`, but the callback has ended"),
            }
        }
        // The count includes entries of cancelled armings that no hint has taken out yet, at most one for each timer.
        assert!(service.stats().timers <= self.timers.len(), "{:?}", service.stats());
    }
}

#[test]
fn a_service_whose_callbacks_act_gives_each_timer_the_right_answer() {
    for round in 0..ROUNDS {
        let mut service = TimerService::new(1 + round);
        let remote = service.remote();
        let mut shared = Shared {
            random: Random(0x2545_F491_4F6C_DD1D ^ (round << 32)),
            timers: (0..12).map(|_| remote.timer()).collect(),
            states: vec![State::Rest(Outcome::Gone); 12],
            mailbox: remote.mailbox(8),
            poll: 1,
            values: 0,
        };
        for _ in 0..STEPS {
            match shared.random.below(3) {
                0 => shared.run(&mut service),
                _ => shared.act(&mut service),
            }
        }
        let mut left = Vec::new();
        service.close(|value| left.push(value));
        left.sort_unstable();
        let mut expected: Vec<u64> = shared
            .states
            .iter()
            .filter_map(|state| match *state {
                State::Armed { value, .. } | State::Revoked { value } => Some(value),
                _ => None,
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
