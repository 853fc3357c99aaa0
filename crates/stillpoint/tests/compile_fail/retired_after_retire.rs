use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let mut reclaimer = domain.reclaimer();
    let old = cell.take().unwrap();
    reclaimer.retire(old).unwrap();
    assert_eq!(*old, 1);
}
