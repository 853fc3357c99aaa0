use stillpoint::pool::Objects;

/// If it compiled, a `reset` could be given functions that keep their arguments for ever, and call them with others.
fn forge(objects: Objects<for<'a> fn(&'a str)>) -> Objects<fn(&'static str)> {
    objects
}

fn main() {
    let _ = forge;
}
