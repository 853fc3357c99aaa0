use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    #[cfg(not(test))] let mut old = cell.take().unwrap();
    #[cfg(test)] let mut old = cell.take().unwrap().try_into_box().unwrap();
    *old = 2;
    assert_eq!(*old, 2);
}
