use stillpoint::rcu::RcuCell;

fn load<'r, R>(cell: &'r RcuCell<u32>, region: &'r R) -> Option<&'r u32> {
    cell.load(region)
}

fn main() {
    let _ = load::<()>;
}
