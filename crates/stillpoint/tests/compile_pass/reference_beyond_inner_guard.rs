use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let outer = reader.pin();
    let inner = reader.pin();
    let object = cell.load(&outer);
    drop(inner);
    assert_eq!(object, Some(&1));
}
