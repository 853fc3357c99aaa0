use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.qsbr_reader();
    let object = cell.load(&reader);
    assert_eq!(object, Some(&1));
    drop(reader);
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
