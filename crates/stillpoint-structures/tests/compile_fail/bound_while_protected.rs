use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let (mut reader, _other) = (domain.reader(), domain.reader());
    #[cfg(not(test))] let object = array.protect(0, &reader);
    #[cfg(test)] let object = array.protect(0, &_other);
    let mut bound = array.bind(&mut reader);
    drop(bound.protect(1));
    assert_eq!(object.as_deref(), Some(&1));
}
