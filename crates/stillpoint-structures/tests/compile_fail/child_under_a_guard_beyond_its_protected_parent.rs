use stillpoint::rcu::{Domain, RcuCell};

struct Parent {
    child: RcuCell<i32>,
}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(Parent { child: domain.cell(1) });
    let reader = domain.reader();
    let guard = reader.pin();
    #[cfg(not(test))] let parent = cell.protect(&reader).unwrap();
    #[cfg(test)] let parent = cell.load(&guard).unwrap();
    let child = parent.child.load(&guard);
    #[cfg(not(test))] drop(parent);
    assert_eq!(child, Some(&1));
    drop(guard);
}
