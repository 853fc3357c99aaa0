use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    let error = cell.compare_exchange_in(&guard, None, None).unwrap_err();
    assert_eq!(error.found, Some(&1));
    drop(guard);
    #[cfg(not(test))] assert_eq!(error.found, Some(&1));
}
