use stillpoint::rcu::{Domain, RcuCell};

struct Parent {
    child: RcuCell<i32>,
}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(Parent { child: domain.cell(1) });
    let reader = domain.reader();
    let parent = cell.protect(&reader).unwrap();
    let child = parent.child.protect(&reader);
    assert_eq!(child.as_deref(), Some(&1));
    #[cfg(test)] drop(child);
    drop(parent);
    #[cfg(not(test))] assert_eq!(child.as_deref(), Some(&1));
}
