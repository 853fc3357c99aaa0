use stillpoint::pool::Bulk;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'p>(bulk: Bulk<'p, for<'a> fn(&'a str)>) -> Bulk<'p, fn(&'static str)> {
    bulk
}

fn main() {
    let _ = forge;
}
