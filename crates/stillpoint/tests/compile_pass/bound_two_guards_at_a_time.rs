use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.reader();
    let mut bound = array.bind(&mut reader);
    let guard = bound.pin();
    assert_eq!(guard.load(0), guard.load(1));
}
