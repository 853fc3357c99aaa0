use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut reader = domain.qsbr_reader();
    let shared = &reader;
    let _ = format!("{shared:?}");
    reader.quiescent();
    #[cfg(not(test))] let _ = format!("{shared:?}");
}
