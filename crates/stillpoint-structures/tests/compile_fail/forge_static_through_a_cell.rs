use stillpoint::rcu::RcuCell;

type Any = for<'a> fn(&'a str);
#[cfg(not(test))] type Other = fn(&'static str);
#[cfg(test)] type Other = Any;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'s>(cell: &'s RcuCell<Any>) -> &'s RcuCell<Other> {
    cell
}

fn main() {
    let _ = forge;
}
