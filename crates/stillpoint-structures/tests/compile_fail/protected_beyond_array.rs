use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(1)));
    let reader = domain.reader();
    let object = array.protect(0, &reader);
    assert_eq!(object.as_deref(), Some(&1));
    #[cfg(test)] drop(object);
    drop(array);
    #[cfg(not(test))] assert_eq!(object.as_deref(), Some(&1));
}
