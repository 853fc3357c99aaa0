//! The hash table.

use std::thread;

use stillpoint::rcu::{Domain, RetireHandle};
use stillpoint::table::{Removed, Table};
use stillpoint_peers::{Element, ReadJob, ReadOutcome, Recipe, Writer, read_loop};

use super::contender::Field;

/// The table, and its domain.
pub(super) struct OfTable {
    domain: Domain,
    table: Table<u64, Element>,
    elements: usize,
    recipe: Recipe,
}

impl OfTable {
    pub(super) fn new(domain: Domain, elements: usize, recipe: Recipe) -> Self {
        let table = Table::with_capacity_in(&domain, elements);
        let field = Self { domain, table, elements, recipe };
        (0..elements).for_each(|index| field.insert(index));
        field
    }

    fn insert(&self, index: usize) {
        self.link(index, self.recipe.element(index as u64));
    }

    /// If the slot of a removed element is still in use, the table takes another one.
    fn link(&self, index: usize, element: Element) {
        let old = self.table.insert(index as u64, element);
        assert!(old.is_ok(), "no memory for an element");
    }

    /// Removes an element, and stamps it.
    fn remove(&self, index: usize) -> Option<Removed<'_, u64, Element>> {
        let old = self.table.remove(&(index as u64))?;
        old.stamp_unlinked();
        Some(old)
    }

    fn submit_removed(&self, index: usize, handle: &RetireHandle) {
        let mut rest = self.remove(index);
        while let Some(old) = rest {
            rest = old.submit_to(handle).err();
            if rest.is_some() {
                thread::yield_now();
            }
        }
    }
}

impl Field for OfTable {
    fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline(never)]
    fn read_protected(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        ready();
        read_loop!(job, self.elements, missing: true, |index, found| found(table.get(&(index as u64)).as_deref()))
    }

    #[inline(never)]
    fn read_unbound(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let reader = self.domain.reader();
        ready();
        read_loop!(job, self.elements, missing: true, |index, found| {
            found(self.table.protect(&reader, &(index as u64)).as_deref())
        })
    }

    #[inline(never)]
    fn read_guarded(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        ready();
        read_loop!(job, self.elements, missing: true, |index, found| found(table.pin().get(&(index as u64))))
    }

    #[inline(never)]
    fn read_qsbr(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.qsbr_reader();
        ready();
        read_loop!(job, self.elements, missing: true, |index, found, rest| {
            let right = found(self.table.within(&reader).get(&(index as u64)));
            reader.quiescent();
            if let Some(work) = rest {
                reader.offline(|| work.rest());
            }
            right
        })
    }

    fn polling(&self) -> Box<dyn Writer + '_> {
        Box::new(PollingWriter(self))
    }

    fn submit_replaced(&self, index: usize, handle: &RetireHandle) {
        self.submit_removed(index, handle);
        self.insert(index);
    }

    fn submit_published(&self, index: usize, new: Option<Box<Element>>, handle: &RetireHandle) {
        self.submit_removed(index, handle);
        if let Some(new) = new {
            self.link(index, *new);
        }
    }
}

struct PollingWriter<'a>(&'a OfTable);

impl Writer for PollingWriter<'_> {
    fn replace(&mut self, index: usize) {
        drop(self.0.remove(index));
        self.0.insert(index);
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        drop(self.0.remove(index));
        if let Some(new) = new {
            self.0.link(index, *new);
        }
    }

    fn poll(&mut self) {
        self.0.table.poll();
    }

    fn drain(&mut self) {
        while self.0.table.pending() > 0 {
            if self.0.table.poll() == 0 {
                thread::yield_now();
            }
        }
    }
}
