use stillpoint::rcu::Domain;

#[deny(unused_must_use)]
fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    drop(cell.replace(2));
    let _ = cell.swap(None);
    assert!(cell.take().is_none());
    #[cfg(not(test))] cell.replace(2);
    #[cfg(not(test))] cell.swap(None);
    #[cfg(not(test))] cell.take();
}
