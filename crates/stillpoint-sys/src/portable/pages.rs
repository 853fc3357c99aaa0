//! There are no pages from the system: large pieces of memory come from the allocator.

use std::convert::Infallible;
use std::ptr::NonNull;

/// No alignment is one of pages.
pub const SMALL: usize = 0;

/// There is none.
#[derive(Debug)]
pub struct Mapping(Infallible);

impl Mapping {
    /// None.
    pub fn new(_bytes: usize, _now: bool) -> Option<Self> {
        None
    }

    /// Of none.
    pub fn into_start(self) -> NonNull<u8> {
        match self.0 {}
    }

    /// # Safety
    /// `start` came from [`into_start`](Mapping::into_start): never.
    pub unsafe fn from_start(_start: NonNull<u8>, _bytes: usize) -> Self {
        unreachable!("there is no mapping")
    }

    /// Of none.
    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    /// Of none.
    pub fn release_end(&mut self, _bytes: usize) {
        match self.0 {}
    }
}

/// Nobody is asked.
pub fn allow_huge(_start: NonNull<u8>, _bytes: usize) {}
