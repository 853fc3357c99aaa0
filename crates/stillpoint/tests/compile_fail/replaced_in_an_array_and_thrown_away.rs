#![deny(unused_must_use)]

use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(1)));
    array.swap(0, None);
}
