use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reader = domain.qsbr_reader();
    let object = cell.load(&reader);
    #[cfg(test)] let copy = object.copied();
    #[cfg(test)] reader.offline(|| assert_eq!(copy, Some(1)));
    #[cfg(not(test))] reader.offline(|| assert_eq!(object, Some(&1)));
}
