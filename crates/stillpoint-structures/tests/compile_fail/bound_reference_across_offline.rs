use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(1)));
    let mut reader = domain.qsbr_reader();
    let mut bound = array.bind_qsbr(&mut reader);
    let object = bound.load(0);
    assert_eq!(object, Some(&1));
    bound.offline(|| ());
    #[cfg(not(test))] assert_eq!(object, Some(&1));
}
