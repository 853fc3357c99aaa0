use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    assert_eq!(cell.load(&reader.pin()), Some(&1));
    #[cfg(not(test))] let object = cell.load(&reader.pin());
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
