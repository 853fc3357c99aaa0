use stillpoint::rcu::Domain;

struct NotClone;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(NotClone);
    let reader = domain.reader();
    let object = cell.protect(&reader).unwrap();
    let second = cell.protect(&reader).unwrap();
    assert!(std::ptr::eq(&*object, &*second));
    #[cfg(not(test))] let _second = object.clone();
}
