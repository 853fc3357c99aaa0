use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    #[cfg(test)] drop(guard);
    drop(reader);
    #[cfg(not(test))] drop(guard);
}
