use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reader = domain.qsbr_reader();
    let object = cell.load(&reader);
    assert_eq!(object, Some(&1));
    let _ = reader.synchronize();
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
