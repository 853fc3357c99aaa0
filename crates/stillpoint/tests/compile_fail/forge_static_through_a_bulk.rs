use stillpoint::pool::Bulk;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'p>(bulk: Bulk<'p, for<'a> fn(&'a str)>) -> Bulk<'p, fn(&'static str)> {
    bulk
}

fn main() {
    let _ = forge;
}
