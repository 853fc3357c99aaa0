use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    drop(reader);
    drop(guard);
}
