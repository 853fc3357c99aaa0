use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let (reader, _second) = (domain.reader(), domain.reader());
    drop(reader.pin());
    #[cfg(not(test))] let _second = reader.clone();
}
