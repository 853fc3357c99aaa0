use stillpoint::pool::Local;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'p>(local: &'p Local<'p, for<'a> fn(&'a str)>) -> &'p Local<'p, fn(&'static str)> {
    local
}

fn main() {
    let _ = forge;
}
