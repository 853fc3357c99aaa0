use stillpoint::rcu::RcuCell;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'s>(cell: &'s RcuCell<for<'a> fn(&'a str)>) -> &'s RcuCell<fn(&'static str)> {
    cell
}

fn main() {
    let _ = forge;
}
