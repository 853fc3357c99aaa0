//! The system provides no pages: large pieces of memory come from the allocator.

use std::convert::Infallible;
use std::ptr::NonNull;

/// Zero: no allocation is aligned to a page.
pub const SMALL: usize = 0;

/// Has no values.
#[derive(Debug)]
pub struct Mapping(Infallible);

impl Mapping {
    /// Returns `None`.
    pub fn new(_bytes: usize, _now: bool) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub fn into_start(self) -> NonNull<u8> {
        match self.0 {}
    }

    /// # Safety
    /// `start` came from [`into_start`](Mapping::into_start): never.
    pub unsafe fn from_start(_start: NonNull<u8>, _bytes: usize) -> Self {
        unreachable!("there is no mapping")
    }

    /// Cannot be called.
    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn release_end(&mut self, _bytes: usize) {
        match self.0 {}
    }
}

/// Does nothing.
///
/// # Safety
/// None is needed.
pub unsafe fn discard(_start: NonNull<u8>, _bytes: usize) {}

/// Does nothing.
pub fn allow_huge(_start: NonNull<u8>, _bytes: usize) {}
