use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    let object = cell.load(&guard);
    assert_eq!(object, Some(&1));
    drop(cell);
    #[cfg(not(test))] assert_eq!(object, Some(&1));
    drop(guard);
}
