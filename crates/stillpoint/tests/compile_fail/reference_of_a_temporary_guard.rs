use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.load(&reader.pin());
    assert_eq!(object, Some(&1));
}
