use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    let first = bound.pin();
    assert_eq!(first.load(0), first.load(1));
    #[cfg(not(test))] let second = bound.pin();
    #[cfg(not(test))] assert_eq!(first.load(0), second.load(0));
}
