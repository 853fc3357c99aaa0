//! Refuses what belongs to another domain than the table.

use std::ptr;
use std::sync::Arc;

use crate::rcu::engine::Core;

/// Panics if a reader or a region is not of the table's domain.
#[inline(always)]
#[track_caller]
pub(super) fn verify_reader(own: &Core, other: &Core) {
    if !ptr::eq(own, other) {
        reject(own, other);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn reject(own: &Core, other: &Core) -> ! {
    let (other, own) = (other.name(), own.name());
    panic!(
        "a reader of domain `{other}` was used with a table of domain `{own}`; pass a reader of `{own}`, to `Table::protect` in place of \
         `get`, or to `Table::reader`, or call `Table::handle`"
    )
}

/// Panics if the reclaimer belongs to another domain than the table.
#[track_caller]
pub(super) fn verify_reclaimer(own: &Arc<Core>, other: &Arc<Core>, how: &str) {
    let (of, to) = (other.name(), own.name());
    assert!(Arc::ptr_eq(own, other), "a reclaimer of domain `{of}` was {how} a table of domain `{to}`");
}
