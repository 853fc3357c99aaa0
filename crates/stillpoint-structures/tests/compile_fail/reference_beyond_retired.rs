use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let old = cell.take().unwrap();
    let reference: &i32 = &old;
    assert_eq!(reference, &1);
    drop(old.try_into_box());
    #[cfg(not(test))] assert_eq!(reference, &1);
}
