use stillpoint::rcu::Domain;

/// Accepts whatever can be sent to another thread.
trait Sent {
    fn sent(&self) {}
}

impl<T: Send> Sent for T {}

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    cell.load(&guard).sent();
    #[cfg(not(test))] guard.sent();
}
