use stillpoint::rcu::Domain;
use stillpoint_structures::List;

fn main() {
    let domain = Domain::new();
    let list = List::<u32, u32>::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    let mut entries = list.iter_in(&guard);
    assert_eq!(entries.next(), None);
    drop(guard);
    #[cfg(not(test))] assert_eq!(entries.next(), None);
}
