use stillpoint::rcu::{Domain, RcuCell, Region};

fn load<'r, R: Region>(cell: &'r RcuCell<u32>, region: &'r R) -> Option<&'r u32> {
    cell.load(region)
}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    assert_eq!(load(&cell, &domain.reader().pin()), Some(&1));
    assert_eq!(load(&cell, &domain.qsbr_reader()), Some(&1));
}
