use stillpoint::rcu::Protected;

/// A shorter lifetime does no harm: the value can only be read.
fn shorten<'s>(object: Protected<'static, i32>) -> Protected<'s, i32> {
    object
}

fn main() {
    let _ = shorten;
}
