use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    let guard = bound.pin();
    let object = guard.load(0);
    assert_eq!(object, Some(&1));
    drop(guard);
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
