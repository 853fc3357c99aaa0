use stillpoint::rcu::RcuArray;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'s>(array: &'s RcuArray<for<'a> fn(&'a str)>) -> &'s RcuArray<fn(&'static str)> {
    array
}

fn main() {
    let _ = forge;
}
