use stillpoint::rcu::Protected;

fn shorten<'s>(object: Protected<'static, i32>) -> Protected<'s, i32> {
    object
}

#[cfg(not(test))]
fn lengthen<'s>(object: Protected<'s, i32>) -> Protected<'static, i32> {
    object
}

fn main() {
    let _ = shorten;
}
