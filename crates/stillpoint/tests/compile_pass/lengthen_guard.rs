use stillpoint::rcu::Guard;

fn shorten<'s>(guard: Guard<'static>) -> Guard<'s> {
    guard
}

fn main() {
    let _ = shorten;
}
