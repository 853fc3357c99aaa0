use stillpoint::pool::Local;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'p>(local: &'p Local<'p, for<'a> fn(&'a str)>) -> &'p Local<'p, fn(&'static str)> {
    local
}

fn main() {
    let _ = forge;
}
