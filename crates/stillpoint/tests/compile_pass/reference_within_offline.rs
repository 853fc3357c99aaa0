use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reader = domain.qsbr_reader();
    let copy = cell.load(&reader).copied();
    reader.offline(|| assert_eq!(copy, Some(1)));
}
