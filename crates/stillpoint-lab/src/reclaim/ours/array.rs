//! An array of cells.

use std::thread;

use stillpoint::rcu::{Domain, RcuArray, Reclaimer, RetireError, RetireHandle, Retired};
use stillpoint_peers::{Element, ReadJob, ReadOutcome, Recipe, Writer, read_loop};

use super::contender::Field;

/// The array, and its domain.
pub(super) struct Cells {
    domain: Domain,
    cells: RcuArray<Element>,
    recipe: Recipe,
}

impl Cells {
    pub(super) fn new(
        domain: Domain,
        cells: usize,
        element: impl Fn(usize) -> Option<Box<Element>>,
        recipe: Recipe,
    ) -> Self {
        let cells = RcuArray::new_in(&domain, cells, element);
        Self { domain, cells, recipe }
    }

    fn replace(&self, index: usize) -> Option<Retired<Element>> {
        self.publish(index, Some(Box::new(self.recipe.element(index as u64))))
    }

    /// Links `new` at `index` and returns what was there, stamped; `None` if the slot was empty.
    fn publish(&self, index: usize, new: Option<Box<Element>>) -> Option<Retired<Element>> {
        let old = self.cells.swap(index, new)?;
        old.stamp_unlinked();
        Some(old)
    }
}

impl Field for Cells {
    fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline(never)]
    fn read_protected(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        read_loop!(job, self.cells.len(), missing: false, |index, found| found(cells.protect(index).as_deref()))
    }

    #[inline(never)]
    fn read_unbound(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let reader = self.domain.reader();
        ready();
        read_loop!(job, self.cells.len(), missing: false, |index, found| {
            found(self.cells.protect(index, &reader).as_deref())
        })
    }

    #[inline(never)]
    fn read_guarded(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        read_loop!(job, self.cells.len(), missing: false, |index, found| {
            let guard = cells.pin();
            found(guard.load(index))
        })
    }

    #[inline(never)]
    fn read_qsbr(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.qsbr_reader();
        let mut cells = self.cells.bind_qsbr(&mut reader);
        ready();
        read_loop!(job, self.cells.len(), missing: false, |index, found, rest| {
            let right = found(cells.load(index));
            cells.quiescent();
            if let Some(work) = rest {
                cells.offline(|| work.rest());
            }
            right
        })
    }

    fn polling(&self) -> Box<dyn Writer + '_> {
        // Without a limit, as the peers are.
        let reclaimer = self.domain.reclaimer_builder().max_pending(usize::MAX).build();
        Box::new(PollingWriter { cells: self, reclaimer })
    }

    fn submit_replaced(&self, index: usize, handle: &RetireHandle) {
        submit(self.replace(index), handle);
    }

    fn submit_published(&self, index: usize, new: Option<Box<Element>>, handle: &RetireHandle) {
        submit(self.publish(index, new), handle);
    }
}

fn submit(mut rest: Option<Retired<Element>>, handle: &RetireHandle) {
    while let Some(old) = rest {
        rest = handle.retire(old).err().map(RetireError::into_inner);
        if rest.is_some() {
            thread::yield_now();
        }
    }
}

struct PollingWriter<'a> {
    cells: &'a Cells,
    reclaimer: Reclaimer,
}

impl PollingWriter<'_> {
    fn retire(&mut self, old: Retired<Element>) {
        self.reclaimer.retire(old).expect("a queue without a limit takes every object of its domain");
    }
}

impl Writer for PollingWriter<'_> {
    fn replace(&mut self, index: usize) {
        if let Some(old) = self.cells.replace(index) {
            self.retire(old);
            self.reclaimer.poll();
        }
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.cells.publish(index, new) {
            self.retire(old);
        }
    }

    fn poll(&mut self) {
        self.reclaimer.poll();
    }

    fn drain(&mut self) {
        while self.reclaimer.pending() > 0 {
            if self.reclaimer.poll() == 0 {
                thread::yield_now();
            }
        }
    }
}
