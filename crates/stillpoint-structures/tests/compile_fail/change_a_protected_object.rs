use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut cell = domain.cell(0);
    *cell.get_mut().unwrap() = 1;
    let reader = domain.reader();
    assert_eq!(cell.protect(&reader).as_deref(), Some(&1));
    #[cfg(not(test))] let mut object = cell.protect(&reader).unwrap();
    #[cfg(test)] let object = cell.get_mut().unwrap();
    *object = 2;
}
