use stillpoint::rcu::Domain;
use stillpoint::table::{Iter, Ref, Removed, Table, TableGuard, TableReader};

type Any = for<'a> fn(&'a str);
type Static = fn(&'static str);

fn same(table: &Table<u64, Any>) -> &Table<u64, Any> {
    table
}

/// Lifetimes shrink.
fn shorter<'s>(reader: TableReader<'static, u64, Any>) -> TableReader<'s, u64, Any> {
    reader
}

fn shorter_guard<'s>(guard: TableGuard<'static, u64, Any>) -> TableGuard<'s, u64, Any> {
    guard
}

fn shorter_iterator<'s>(iter: Iter<'static, u64, Any>) -> Iter<'s, u64, Any> {
    iter
}

fn shorter_removed<'s>(removed: Removed<'static, u64, Any>) -> Removed<'s, u64, Any> {
    removed
}

/// An entry that is only read may be seen as a supertype, like a reference.
fn seen_as<'s>(entry: Ref<'s, u64, Any>) -> Ref<'s, u64, Static> {
    entry
}

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn main() {
    let _ = (shorter, shorter_guard, shorter_iterator, shorter_removed);
    let domain = Domain::new();
    let table: Table<u64, Any> = Table::new_in(&domain);
    same(&table).insert(1, greet).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let name = String::from("short");
    (*lookup.get(&1).unwrap())(&name);
    seen_as(lookup.get(&1).unwrap()).value()("short");
}
