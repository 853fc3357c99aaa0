use stillpoint::pool::Block;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'p>(block: Block<'p, for<'a> fn(&'a str)>) -> Block<'p, fn(&'static str)> {
    block
}

fn main() {
    let _ = forge;
}
