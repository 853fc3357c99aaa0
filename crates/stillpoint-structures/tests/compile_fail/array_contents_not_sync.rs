use stillpoint::rcu::{Domain, RcuArray};

fn main() {
    let _array = RcuArray::new_in(&Domain::new(), 1, |_| Some(Box::new(std::sync::atomic::AtomicU32::new(1))));
    #[cfg(not(test))] let _array = RcuArray::new_in(&Domain::new(), 1, |_| Some(Box::new(std::cell::Cell::new(1))));
}
