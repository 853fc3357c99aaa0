use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(1)));
    let reader = domain.reader();
    let guard = reader.pin();
    let object = array.load(0, &guard);
    assert_eq!(object, Some(&1));
    drop(array);
    #[cfg(not(test))] assert_eq!(object, Some(&1));
    drop(guard);
}
