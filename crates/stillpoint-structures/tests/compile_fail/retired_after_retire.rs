use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reclaimer = domain.reclaimer();
    let old = cell.take().unwrap();
    assert_eq!(*old, 1);
    reclaimer.retire(old).unwrap();
    #[cfg(not(test))] assert_eq!(*old, 1);
}
