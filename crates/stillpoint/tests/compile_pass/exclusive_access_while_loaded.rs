use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    assert_eq!(cell.load(&guard), Some(&1));
    *cell.get_mut().unwrap() = 2;
    assert_eq!(cell.load(&guard), Some(&2));
}
