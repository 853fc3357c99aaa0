use stillpoint::rcu::Domain;
use stillpoint_structures::List;

fn main() {
    let domain = Domain::new();
    let list = List::<u32, u32>::new_in(&domain);
    let reader = domain.reader();
    let value: Option<&u32> = list.get(&1, &reader).as_deref();
    assert_eq!(value, None);
}
