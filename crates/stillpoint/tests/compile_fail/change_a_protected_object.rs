use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let mut object = cell.protect(&reader).unwrap();
    *object = 2;
}
