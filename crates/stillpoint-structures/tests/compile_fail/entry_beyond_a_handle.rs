use std::sync::Arc;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

fn main() {
    let table: Arc<Table<u64, u64>> = Arc::new(Table::new_in(&Domain::new()));
    table.insert(1, 1).unwrap();
    let mut handle = table.handle();
    let mut lookup = handle.reader();
    let entry = lookup.get(&1);
    assert!(entry.is_some());
    #[cfg(test)] drop(entry);
    drop(lookup);
    drop(handle);
    #[cfg(not(test))] assert!(entry.is_some());
}
