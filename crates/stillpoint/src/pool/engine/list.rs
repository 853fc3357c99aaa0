//! A list of buckets, linked through their rows. Only for the holder of the shard.

use super::own::OwnU32;
use super::row::{Row, NONE};
use stillpoint_sys::work;

/// The newest bucket is the first.
#[derive(Debug)]
pub(crate) struct List {
    first: OwnU32,
    last: OwnU32,
    len: OwnU32,
}

impl List {
    pub(crate) fn new() -> Self {
        Self { first: OwnU32::new(NONE), last: OwnU32::new(NONE), len: OwnU32::new(0) }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len.get()
    }

    pub(crate) fn first(&self) -> Option<u32> {
        some(self.first.get())
    }

    pub(crate) fn last(&self) -> Option<u32> {
        some(self.last.get())
    }

    pub(crate) fn push(&self, rows: &[Row], bucket: u32) {
        work::step();
        let (row, after) = (&rows[bucket as usize], self.first.get());
        row.before.set(NONE);
        row.after.set(after);
        match some(after) {
            Some(after) => rows[after as usize].before.set(bucket),
            None => self.last.set(bucket),
        }
        self.first.set(bucket);
        self.len.set(self.len.get() + 1);
    }

    /// Removes a bucket of this list.
    pub(crate) fn remove(&self, rows: &[Row], bucket: u32) {
        let row = &rows[bucket as usize];
        let (before, after) = (row.before.get(), row.after.get());
        match some(before) {
            Some(before) => rows[before as usize].after.set(after),
            None => self.first.set(after),
        }
        match some(after) {
            Some(after) => rows[after as usize].before.set(before),
            None => self.last.set(before),
        }
        self.len.set(self.len.get() - 1);
    }
}

fn some(bucket: u32) -> Option<u32> {
    (bucket != NONE).then_some(bucket)
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_taken_out_anywhere() {
        let rows: Vec<Row> = (0..5).map(|_| Row::absent()).collect();
        let list = List::new();
        (0..5).for_each(|bucket| list.push(&rows, bucket));
        for (taken, first, last) in [(2, 4, 0), (4, 3, 0), (0, 3, 1), (3, 1, 1)] {
            list.remove(&rows, taken);
            assert_eq!((list.first(), list.last()), (Some(first), Some(last)));
        }
        list.remove(&rows, 1);
        assert_eq!((list.first(), list.last(), list.len()), (None, None, 0));
    }
}
