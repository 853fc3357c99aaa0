//! The same items for a build without a C compiler. All functions fail.

use super::TimerContender;

const ABSENT: &str = "this build has no C compiler: install gcc and build again";

/// Would be timers of one thread. There is no value of this type.
pub enum Htimers {}

impl Htimers {
    /// Fails: would make the timers.
    ///
    /// # Errors
    /// Always: this build has no C compiler.
    pub fn new(_timers: usize) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }
}

impl TimerContender for Htimers {
    fn name(&self) -> &'static str {
        match *self {}
    }

    fn add(&mut self, _delays: &[u64]) -> Result<(), String> {
        match *self {}
    }

    fn reset(&mut self, _delays: &[u64]) -> u64 {
        match *self {}
    }

    fn cancel(&mut self, _order: &[u32]) -> u64 {
        match *self {}
    }

    fn idle(&mut self, _polls: usize) -> u64 {
        match *self {}
    }

    fn expire(&mut self, _ticks: u64) -> u64 {
        match *self {}
    }

    fn forget(&mut self) {
        match *self {}
    }
}

/// Would be the timers of a thread that asks another one to add them. There is no value of this type.
pub enum HtimerSource {}

/// Would be the thread that is asked. There is no value of this type.
pub enum HtimerTarget {}

/// Would be its address. There is no value of this type.
#[derive(Clone, Copy)]
pub enum HtimerAddress {}

impl HtimerTarget {
    /// Fails: would make the calling thread a target.
    ///
    /// # Errors
    /// Always: this build has no C compiler.
    pub fn new(_timers: usize) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// Cannot be called: there is no value of this type.
    pub fn address(&self) -> HtimerAddress {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn process(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn add(&mut self, _delays: &[u64]) -> usize {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn cancel(&mut self, _order: &[u32]) -> usize {
        match *self {}
    }
}

impl HtimerSource {
    /// Fails: would make the timers.
    ///
    /// # Errors
    /// Always: this build has no C compiler.
    pub fn new(_timers: usize) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// Cannot be called: there is no value of this type.
    pub fn ask(&mut self, _target: HtimerAddress, _delays: &[u64], _burst: usize) -> usize {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn ask_to_cancel(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn take_results(&mut self) -> usize {
        match *self {}
    }

    /// Cannot be called: there is no value of this type.
    pub fn told(&mut self) -> (usize, usize) {
        match *self {}
    }
}
