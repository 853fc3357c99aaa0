use stillpoint::pool::Objects;

type Any = for<'a> fn(&'a str);
#[cfg(not(test))] type Other = fn(&'static str);
#[cfg(test)] type Other = Any;

/// If it compiled, a `reset` could be given functions that keep their arguments for ever, and call them with others.
fn forge(objects: Objects<Any>) -> Objects<Other> {
    objects
}

fn main() {
    let _ = forge;
}
