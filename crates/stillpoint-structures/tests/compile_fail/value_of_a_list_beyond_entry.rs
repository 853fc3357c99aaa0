use stillpoint::rcu::Domain;
use stillpoint_structures::List;

fn main() {
    let domain = Domain::new();
    let list = List::<u32, u32>::new_in(&domain);
    let reader = domain.reader();
    let entry = list.get(&1, &reader);
    let value: Option<&u32> = entry.as_deref();
    assert_eq!(value, None);
    #[cfg(not(test))] let value: Option<&u32> = list.get(&1, &reader).as_deref();
    #[cfg(not(test))] assert_eq!(value, None);
}
