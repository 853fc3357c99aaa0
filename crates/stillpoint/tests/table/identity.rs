//! A hasher for tests that choose where keys go.

use std::hash::Hasher;

/// The number itself, with the same tag for all: its lower bits choose the chain, so numbers one after the other fill chains
/// evenly.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
