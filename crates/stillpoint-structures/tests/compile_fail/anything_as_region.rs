use stillpoint::rcu::{Domain, RcuCell};

fn load<'r, #[cfg(not(test))] R, #[cfg(test)] R: stillpoint::rcu::Region>(cell: &'r RcuCell<u32>, region: &'r R) -> Option<&'r u32> {
    cell.load(region)
}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    assert_eq!(load(&cell, &domain.reader().pin()), Some(&1));
    assert_eq!(load(&cell, &domain.qsbr_reader()), Some(&1));
}
