use stillpoint::rcu::Guard;

fn lengthen<'s>(guard: Guard<'s>) -> Guard<'static> {
    guard
}

fn main() {
    let _ = lengthen;
}
