use stillpoint::rcu::{Domain, RcuCell};

struct Parent {
    child: RcuCell<i32>,
}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(Parent { child: domain.cell(1) });
    let reader = domain.reader();
    let guard = reader.pin();
    let parent = cell.take().unwrap();
    let child = parent.child.load(&guard);
    assert_eq!(child, Some(&1));
    drop(parent);
    #[cfg(not(test))] assert_eq!(child, Some(&1));
}
