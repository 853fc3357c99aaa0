use stillpoint::rcu::Protected;

fn lengthen<'s>(object: Protected<'s, i32>) -> Protected<'static, i32> {
    object
}

fn main() {
    let _ = lengthen;
}
