use stillpoint::pool::BlockObjects;

/// If this compiled, a function that keeps its argument for ever could be stored in place of a function that is
/// called with short-lived arguments. A `'static` bound would not forbid that: both function types are `'static`.
fn forge<'p>(objects: BlockObjects<'p, for<'a> fn(&'a str)>) -> BlockObjects<'p, fn(&'static str)> {
    objects
}

fn main() {
    let _ = forge;
}
