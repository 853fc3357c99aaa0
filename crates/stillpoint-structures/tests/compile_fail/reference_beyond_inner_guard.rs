use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let outer = reader.pin();
    assert_eq!(cell.load(&outer), Some(&1));
    let inner = reader.pin();
    #[cfg(test)] let object = cell.load(&outer);
    #[cfg(not(test))] let object = cell.load(&inner);
    drop(inner);
    assert_eq!(object, Some(&1));
}
