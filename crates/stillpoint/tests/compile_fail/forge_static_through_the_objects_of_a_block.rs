use stillpoint::pool::BlockObjects;

/// If it compiled, a function that keeps its argument for ever could be stored where functions are called with
/// arguments that do not live so long: both types are `'static` themselves.
fn forge<'p>(objects: BlockObjects<'p, for<'a> fn(&'a str)>) -> BlockObjects<'p, fn(&'static str)> {
    objects
}

fn main() {
    let _ = forge;
}
