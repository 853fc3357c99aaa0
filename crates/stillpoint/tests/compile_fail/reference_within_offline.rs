use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reader = domain.qsbr_reader();
    let object = cell.load(&reader);
    reader.offline(|| assert_eq!(object, Some(&1)));
}
