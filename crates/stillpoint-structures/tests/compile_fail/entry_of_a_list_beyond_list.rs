use stillpoint::rcu::Domain;
use stillpoint_structures::List;

fn main() {
    let domain = Domain::new();
    let list = List::<u32, u32>::new_in(&domain);
    let reader = domain.reader();
    let entry = list.get(&1, &reader);
    assert!(entry.is_none());
    #[cfg(test)] drop(entry);
    drop(list);
    #[cfg(not(test))] assert!(entry.is_none());
}
