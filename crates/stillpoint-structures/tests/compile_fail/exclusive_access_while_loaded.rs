use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    let object = cell.load(&guard);
    assert_eq!(object, Some(&1));
    *cell.get_mut().unwrap() = 2;
    assert_eq!(cell.load(&guard), Some(&2));
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
