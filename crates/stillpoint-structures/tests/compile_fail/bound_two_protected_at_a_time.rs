use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    let first = bound.protect(0);
    assert_eq!(first.as_deref(), Some(&1));
    #[cfg(test)] drop(first);
    let second = bound.protect(1);
    assert_eq!(second.as_deref(), Some(&1));
    #[cfg(not(test))] assert_eq!(first.as_deref(), second.as_deref());
}
