//! Misuse that was found too late to be refused. The first cases, and the number of all, are kept for queries.

use std::sync::{Mutex, PoisonError};

use super::Core;
use crate::pool::audit::Misuse;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of cases that are kept.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    count: AtomicUsize,
    first: Mutex<Vec<Misuse>>,
}

impl Ledger {
    #[cold]
    pub(crate) fn report(&self, misuse: Misuse) {
        // Relaxed: a count.
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < KEPT {
            first.push(misuse);
        }
    }

    pub(crate) fn count(&self) -> usize {
        // Relaxed: a count.
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn first(&self) -> Vec<Misuse> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Core {
    /// Reports objects of a row that were freed although they were free.
    #[inline]
    pub(crate) fn report_doubled(&self, row: u32, bits: u64) {
        if bits != 0 {
            self.report_each(row, bits);
        }
    }

    #[cold]
    fn report_each(&self, row: u32, mut bits: u64) {
        while bits != 0 {
            let address = self.address(row, bits.trailing_zeros()).addr();
            self.ledger.report(Misuse::DoubleFree { address });
            bits &= bits - 1;
        }
    }

    #[cold]
    pub(crate) fn report_stranger(&self, object: *mut u8) {
        self.ledger.report(Misuse::NotAnObject { address: object.addr() });
    }

    #[cold]
    pub(crate) fn report_written(&self, object: *mut u8, offset: usize) {
        self.ledger.report(Misuse::WrittenAfterFree { address: object.addr(), offset });
    }

    #[cold]
    pub(crate) fn report_invalid(&self, object: *mut u8) {
        self.ledger.report(Misuse::Invalid { address: object.addr() });
    }
}
