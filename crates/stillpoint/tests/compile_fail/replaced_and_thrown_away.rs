#![deny(unused_must_use)]

use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    cell.replace(2);
    cell.swap(None);
    cell.take();
}
