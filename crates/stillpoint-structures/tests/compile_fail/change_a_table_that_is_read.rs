use stillpoint::rcu::Domain;
use stillpoint::table::Table;

fn main() {
    let domain = Domain::new();
    let mut table: Table<u64, u64> = Table::new_in(&domain);
    table.insert(1, 1).unwrap();
    let region = domain.qsbr_reader();
    let view = table.within(&region);
    let value = view.get(&1);
    assert_eq!(value, Some(&1));
    *table.get_mut(&1).unwrap() = 2;
    #[cfg(not(test))] assert_eq!(value, Some(&1));
}
