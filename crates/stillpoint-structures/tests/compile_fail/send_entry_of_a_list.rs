use stillpoint::rcu::Domain;
use stillpoint_structures::List;

fn main() {
    let domain = Domain::new();
    let list = List::<u32, u32>::new_in(&domain);
    let reader = domain.reader();
    let entry = list.get(&1, &reader);
    let value = entry.as_deref().copied();
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!(value, None));
        #[cfg(not(test))] scope.spawn(move || drop(entry));
    });
}
