use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    let object = bound.protect(0);
    assert_eq!(object.as_deref(), Some(&1));
    #[cfg(test)] drop(object);
    let _guard = reader.pin();
    #[cfg(not(test))] assert_eq!(object.as_deref(), Some(&1));
}
