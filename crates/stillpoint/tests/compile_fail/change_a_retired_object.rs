use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut old = cell.take().unwrap();
    *old = 2;
}
