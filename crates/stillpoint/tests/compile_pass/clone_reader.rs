use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let _readers = (domain.reader(), domain.reader());
}
