use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut cell = domain.cell(1);
    *cell.get_mut().unwrap() = 2;
    assert_eq!(cell.into_inner(), Some(Box::new(2)));
}
