use stillpoint::rcu::Protected;

/// A shorter one does no harm: it can be read, and nothing else.
fn shorten<'s>(object: Protected<'static, i32>) -> Protected<'s, i32> {
    object
}

fn main() {
    let _ = shorten;
}
