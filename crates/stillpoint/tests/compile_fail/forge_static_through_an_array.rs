use stillpoint::rcu::RcuArray;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'s>(array: &'s RcuArray<for<'a> fn(&'a str)>) -> &'s RcuArray<fn(&'static str)> {
    array
}

fn main() {
    let _ = forge;
}
