//! stillpoint's wheel as a contender, through its public interface. A tick is a nanosecond.

use std::hint::black_box;

use stillpoint::timer::{Clock, Key, Limit, Wheel};
use stillpoint_peers::timer::TimerContender;

/// With the caller's time, as the wheel asks for it; or with a clock read at each addition, reset and poll.
pub(super) struct Ours {
    wheel: Wheel<u64>,
    keys: Vec<Key>,
    clock: Option<Clock>,
    /// What the clock is ahead of the wheel.
    ahead: u64,
    limit: Limit,
}

impl Ours {
    pub(super) fn new(timers: usize, clock: Option<Clock>) -> Self {
        let now = clock.as_ref().map_or(0, Clock::now);
        let wheel = Wheel::with_capacity(now, timers);
        Self { wheel, keys: Vec::with_capacity(timers), clock, ahead: 0, limit: Limit::NONE }
    }

    /// The same with polls of at most that many expiries.
    pub(super) fn within(self, expiries: usize) -> Self {
        Self { limit: Limit::expiries(expiries), ..self }
    }

    #[inline(always)]
    fn add_from(&mut self, delays: &[u64], now: impl Fn(&Self) -> u64) -> Result<(), String> {
        for &delay in delays {
            let at = now(self) + delay;
            self.keys.push(self.wheel.add(at, 1).map_err(|full| full.to_string())?);
        }
        Ok(())
    }

    #[inline(always)]
    fn reset_from(&mut self, delays: &[u64], now: impl Fn(&Self) -> u64) -> u64 {
        let mut done = 0;
        for (at, &delay) in delays.iter().enumerate() {
            let deadline = now(self) + delay;
            done += u64::from(self.wheel.reset(self.keys[at], deadline));
        }
        done
    }

    #[inline(always)]
    fn poll(&mut self, now: u64) -> u64 {
        let mut sum = 0;
        let progress = self.wheel.poll(now, self.limit, |_, expired| {
            sum += black_box(expired.into_value()).unwrap_or(0);
        });
        debug_assert!(progress.is_done() || self.limit != Limit::NONE);
        sum
    }
}

impl TimerContender for Ours {
    fn name(&self) -> &'static str {
        if self.clock.is_some() { "stillpoint/wheel+clock" } else { "stillpoint/wheel" }
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        match self.clock.clone() {
            Some(clock) => self.add_from(delays, |ours| clock.now() + ours.ahead),
            None => self.add_from(delays, |ours| ours.wheel.now()),
        }
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        match self.clock.clone() {
            Some(clock) => self.reset_from(delays, |ours| clock.now() + ours.ahead),
            None => self.reset_from(delays, |ours| ours.wheel.now()),
        }
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        order.iter().fold(0, |sum, &which| sum + self.wheel.cancel(self.keys[which as usize]).unwrap_or(0))
    }

    fn idle(&mut self, polls: usize) -> u64 {
        let mut sum = 0;
        match self.clock.clone() {
            Some(clock) => (0..polls).for_each(|_| sum += self.poll(clock.now() + self.ahead)),
            None => {
                let mut now = self.wheel.now();
                for _ in 0..polls {
                    now += 1;
                    sum += self.poll(black_box(now));
                }
            }
        }
        sum
    }

    fn expire(&mut self, ticks: u64) -> u64 {
        match self.clock.clone() {
            Some(clock) => {
                self.ahead += ticks;
                self.poll(clock.now() + self.ahead)
            }
            None => self.poll(self.wheel.now() + ticks),
        }
    }

    fn forget(&mut self) {
        self.keys.clear();
    }

    fn millisecond(&self) -> Option<u64> {
        self.clock.is_none().then_some(1_000_000)
    }

    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        let at = self.wheel.now() + delay;
        (0..count).try_for_each(|_| self.wheel.add(at, 1).map(drop)).map_err(|full| full.to_string())
    }
}
