use stillpoint::rcu::Domain;

/// Accepts whatever can be sent to another thread.
trait Sent {
    fn sent(&self) {}
}

impl<T: Send> Sent for T {}

fn main() {
    let domain = Domain::new();
    domain.sent();
    #[cfg(not(test))] domain.reader().sent();
}
