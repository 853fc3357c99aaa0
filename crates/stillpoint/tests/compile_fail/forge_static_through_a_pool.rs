use stillpoint::pool::Pool;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'p>(pool: &'p Pool<for<'a> fn(&'a str)>) -> &'p Pool<fn(&'static str)> {
    pool
}

fn main() {
    let _ = forge;
}
