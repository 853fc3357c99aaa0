use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.protect(&reader).unwrap();
    let reference: &i32 = &object;
    assert_eq!(reference, &1);
    drop(object);
    #[cfg(not(test))] assert_eq!(reference, &1);
}
