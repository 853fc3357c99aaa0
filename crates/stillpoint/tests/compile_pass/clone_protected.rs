use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.protect(&reader).unwrap();
    let second = cell.protect(&reader).unwrap();
    assert_eq!(*object, *second);
}
