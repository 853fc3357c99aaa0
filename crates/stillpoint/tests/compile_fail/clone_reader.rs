use stillpoint::rcu::Domain;

fn main() {
    let reader = Domain::new().reader();
    let _second = reader.clone();
}
