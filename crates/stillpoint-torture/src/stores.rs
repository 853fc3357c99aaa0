//! Stores that keep a store buffer busy.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines: 16 MiB, more than the caches of a core hold, so that a store has to wait for its line.
const LINES: usize = 1 << 18;
/// The distance in lines from one store to the next: an odd number, so that all lines are reached, and more than a page, so that
/// no prefetcher helps.
const STRIDE: usize = 4099;

/// Memory to which one thread stores only to keep its store buffer busy.
#[derive(Debug)]
pub(crate) struct Stores {
    lines: Box<[Line]>,
    next: Cell<usize>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Stores {
    pub(crate) fn new() -> Self {
        let lines = (0..LINES).map(|_| Line::default()).collect();
        // The compiler must assume that the stores are read; otherwise it may omit them, and has done so.
        Self { lines: black_box(lines), next: Cell::new(0) }
    }

    /// Stores to `number` lines that are probably in no near cache.
    #[inline]
    pub(crate) fn fill(&self, number: usize) {
        for _ in 0..number {
            let next = (self.next.get() + STRIDE) % LINES;
            self.next.set(next);
            // Relaxed: no thread reads it.
            self.lines[next].0.store(1, Ordering::Relaxed);
        }
    }
}
