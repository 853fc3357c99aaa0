use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.protect(&reader);
    drop(cell.take());
    assert_eq!(object.as_deref(), Some(&1));
    #[cfg(test)] drop(object);
    drop(cell);
    #[cfg(not(test))] assert_eq!(object.as_deref(), Some(&1));
}
