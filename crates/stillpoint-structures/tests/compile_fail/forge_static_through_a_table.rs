use stillpoint::table::{Iter, IterMut, Removed, Table, TableGuard, TableHandle, TableReader};

type Any = for<'a> fn(&'a str);
#[cfg(not(test))] type Other = fn(&'static str);
#[cfg(test)] type Other = Any;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'s>(table: &'s Table<u64, Any>) -> &'s Table<u64, Other> {
    table
}

fn forge_with_a_key<'s>(table: &'s Table<Any, u64>) -> &'s Table<Other, u64> {
    table
}

/// A reader inserts, too.
fn forge_with_a_reader<'s>(reader: TableReader<'s, u64, Any>) -> TableReader<'s, u64, Other> {
    reader
}

fn forge_with_a_guard<'s>(guard: TableGuard<'s, u64, Any>) -> TableGuard<'s, u64, Other> {
    guard
}

fn forge_with_an_iterator<'s>(iter: Iter<'s, u64, Any>) -> Iter<'s, u64, Other> {
    iter
}

fn forge_with_a_removed_entry<'s>(removed: Removed<'s, u64, Any>) -> Removed<'s, u64, Other> {
    removed
}

fn forge_with_a_handle(handle: TableHandle<u64, Any>) -> TableHandle<u64, Other> {
    handle
}

fn forge_with_an_exclusive_iterator<'s>(iter: IterMut<'s, u64, Any>) -> IterMut<'s, u64, Other> {
    iter
}

fn main() {}
