use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reader = domain.qsbr_reader();
    let object = cell.load(&reader);
    assert_eq!(object, Some(&1));
    reader.quiescent();
    assert_eq!(cell.load(&reader), Some(&1));
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
