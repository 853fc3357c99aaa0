use stillpoint::rcu::RcuCell;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'s>(cell: &'s RcuCell<for<'a> fn(&'a str)>) -> &'s RcuCell<fn(&'static str)> {
    cell
}

fn main() {
    let _ = forge;
}
