use stillpoint::rcu::Guard;

fn shorten<'s>(guard: Guard<'static>) -> Guard<'s> {
    guard
}

#[cfg(not(test))]
fn lengthen<'s>(guard: Guard<'s>) -> Guard<'static> {
    guard
}

fn main() {
    let _ = shorten;
}
