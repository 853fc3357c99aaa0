use stillpoint::rcu::Domain;

fn main() {
    let _cell = Domain::new().cell(std::sync::atomic::AtomicU32::new(1));
    #[cfg(not(test))] let _cell = Domain::new().cell(std::cell::Cell::new(1));
}
