use stillpoint::pool::Pool;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'p>(pool: &'p Pool<for<'a> fn(&'a str)>) -> &'p Pool<fn(&'static str)> {
    pool
}

fn main() {
    let _ = forge;
}
