use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.protect(&reader);
    let boxed = cell.into_inner();
    assert_eq!(object.as_deref(), Some(&1));
    drop(boxed);
}
