use stillpoint::pool::Block;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'p>(block: Block<'p, for<'a> fn(&'a str)>) -> Block<'p, fn(&'static str)> {
    block
}

fn main() {
    let _ = forge;
}
