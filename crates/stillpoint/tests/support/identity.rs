//! A hasher for tests that choose the chains of keys.

use std::hash::Hasher;

/// The hash is the number itself. All keys have the same tag; the lower bits choose the chain, so consecutive numbers
/// fill chains evenly.
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
