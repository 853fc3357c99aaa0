use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut object = cell.take().unwrap().try_into_box().unwrap();
    *object = 2;
    assert_eq!(*object, 2);
}
