use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    drop(bound.protect(0));
    drop(reader);
    #[cfg(not(test))] let _object = bound.protect(0);
}
