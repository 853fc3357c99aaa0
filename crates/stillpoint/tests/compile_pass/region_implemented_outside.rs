use stillpoint::rcu::{Domain, Guard, QsbrReader, Region};

/// The trait may still be used as a bound.
struct Holds<R: Region>(R);

fn main() {
    let domain = Domain::new();
    let reader = domain.reader();
    let _guard: Holds<Guard<'_>> = Holds(reader.pin());
    let _reader: Holds<QsbrReader> = Holds(domain.qsbr_reader());
}
