use stillpoint::rcu::Domain;

fn main() {
    let _cell = Domain::new().cell(std::cell::Cell::new(1));
}
