use stillpoint::rcu::{Domain, RcuArray};

#[deny(unused_must_use)]
fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(1)));
    drop(array.swap(0, None));
    #[cfg(not(test))] array.swap(0, None);
}
