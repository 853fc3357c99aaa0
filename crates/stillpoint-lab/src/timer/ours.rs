//! stillpoint's wheel as a contender, through its public interface. A tick is a nanosecond.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stillpoint::timer::{Clock, Key, Limit, Wheel};
use stillpoint_peers::timer::{IdleTimers, TimerContender};

pub(super) struct Ours<T> {
    wheel: Wheel<u64>,
    keys: Vec<Key>,
    time: T,
    limit: Limit,
}

/// Where the time comes from. The wheel's own time is `wheel`.
pub(super) trait Time: Default {
    /// Whether the experiment sets the time.
    const IS_SET: bool = true;

    /// The time at which the wheel begins.
    fn begin(&self) -> u64 {
        0
    }

    /// The deadline of a timer with this delay.
    fn deadline(&self, wheel: u64, delay: u64) -> u64;

    /// The time once this many nanoseconds have passed.
    fn pass(&mut self, wheel: u64, more: u64) -> u64;
}

/// The caller passes the time in ticks, as the wheel expects it.
#[derive(Default)]
pub(super) struct Ticks;

impl Time for Ticks {
    #[inline(always)]
    fn deadline(&self, wheel: u64, delay: u64) -> u64 {
        wheel + delay
    }

    #[inline(always)]
    fn pass(&mut self, wheel: u64, more: u64) -> u64 {
        wheel + more
    }
}

/// The caller has the time in the types of the standard library, and converts it to ticks.
pub(super) struct Instants {
    begin: Instant,
    now: Instant,
}

impl Default for Instants {
    fn default() -> Self {
        let begin = Instant::now();
        Self { begin, now: begin }
    }
}

impl Time for Instants {
    #[inline(always)]
    fn deadline(&self, _wheel: u64, delay: u64) -> u64 {
        ticks(self.begin, self.now + Duration::from_nanos(delay))
    }

    #[inline(always)]
    fn pass(&mut self, _wheel: u64, more: u64) -> u64 {
        self.now += Duration::from_nanos(more);
        ticks(self.begin, black_box(self.now))
    }
}

/// A clock, which is read at each addition, reset and poll, and is ahead of the wheel.
pub(super) struct Clocked {
    clock: Clock,
    ahead: u64,
}

impl Default for Clocked {
    fn default() -> Self {
        Self { clock: Clock::new(), ahead: 0 }
    }
}

impl Time for Clocked {
    const IS_SET: bool = false;

    fn begin(&self) -> u64 {
        self.clock.now()
    }

    #[inline(always)]
    fn deadline(&self, _wheel: u64, delay: u64) -> u64 {
        self.clock.now() + self.ahead + delay
    }

    #[inline(always)]
    fn pass(&mut self, _wheel: u64, more: u64) -> u64 {
        self.ahead += more;
        self.clock.now() + self.ahead
    }
}

/// Nanoseconds since the beginning.
#[inline(always)]
fn ticks(begin: Instant, at: Instant) -> u64 {
    at.duration_since(begin).as_nanos() as u64
}

impl<T: Time> Ours<T> {
    pub(super) fn new(timers: usize) -> Self {
        let time = T::default();
        let wheel = Wheel::with_capacity(time.begin(), timers);
        Self { wheel, keys: Vec::with_capacity(timers), time, limit: Limit::NONE }
    }

    /// The same, but a poll fires at most `expiries` timers.
    pub(super) fn within(self, expiries: usize) -> Self {
        Self { limit: Limit::expiries(expiries), ..self }
    }

    /// Polls after this many nanoseconds.
    #[inline(always)]
    fn poll(&mut self, more: u64) -> u64 {
        let now = self.time.pass(self.wheel.now(), more);
        let mut sum = 0;
        let progress = self.wheel.poll(black_box(now), self.limit, |_, expired| {
            sum += black_box(expired.into_value()).unwrap_or(0);
        });
        debug_assert!(progress.is_done() || self.limit != Limit::NONE);
        sum
    }
}

impl<T: Time> TimerContender for Ours<T> {
    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        for &delay in delays {
            let at = self.time.deadline(self.wheel.now(), delay);
            self.keys.push(self.wheel.add(at, 1).map_err(|full| full.to_string())?);
        }
        Ok(())
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        let mut done = 0;
        for (at, &delay) in delays.iter().enumerate() {
            let deadline = self.time.deadline(self.wheel.now(), delay);
            done += u64::from(self.wheel.reset(self.keys[at], deadline));
        }
        done
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        order.iter().fold(0, |sum, &which| sum + self.wheel.cancel(self.keys[which as usize]).unwrap_or(0))
    }

    fn idle(&mut self, polls: usize) -> u64 {
        (0..polls).map(|_| self.poll(u64::from(T::IS_SET))).sum()
    }

    fn expire(&mut self, more: u64) -> u64 {
        self.poll(more)
    }

    fn forget(&mut self) {
        self.keys.clear();
    }

    fn millisecond(&self) -> Option<u64> {
        T::IS_SET.then_some(1_000_000)
    }

    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        let at = self.time.deadline(self.wheel.now(), delay);
        (0..count).try_for_each(|_| self.wheel.add(at, 1).map(drop)).map_err(|full| full.to_string())
    }
}

/// Timers of connections. The application reads the time once for each burst, and passes it.
pub(super) struct Idle {
    wheel: Wheel<u32>,
    keys: Vec<Option<Key>>,
    begin: Instant,
}

impl Idle {
    /// The most timers that a poll fires, and the most that it moves on each level.
    const LIMIT: usize = 64;

    pub(super) fn new(connections: usize) -> Self {
        let wheel = Wheel::with_capacity(0, connections);
        Self { wheel, keys: vec![None; connections], begin: Instant::now() }
    }
}

impl IdleTimers for Idle {
    fn clock(&mut self) -> u64 {
        ticks(self.begin, Instant::now())
    }

    fn tick(&self) -> u64 {
        1
    }

    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
        let key = self.wheel.add(now + timeout, connection).map_err(|full| full.to_string())?;
        self.keys[connection as usize] = Some(key);
        Ok(())
    }

    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
        let keys = connections.iter().filter_map(|&connection| self.keys[connection as usize]);
        keys.filter(|&key| self.wheel.reset(key, now + timeout)).count()
    }

    fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool {
        let fired = |_: &mut Wheel<u32>, timer: stillpoint::timer::Expired<'_, u32>| {
            expired.extend(timer.into_value());
        };
        self.wheel.poll(now, Limit::expiries(Self::LIMIT), fired).is_done()
    }
}
