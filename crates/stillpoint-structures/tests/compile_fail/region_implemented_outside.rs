use stillpoint::rcu::{Domain, Guard, QsbrReader, Region};

/// The trait may be used as a bound.
struct Holds<R: Region>(R);

struct Mine;

// SAFETY: none: the trait asks for this one, which has no public name.
#[cfg(not(test))]
unsafe impl stillpoint::rcu::region::sealed::Sealed for Mine {}

#[cfg(not(test))]
impl Region for Mine {}

fn main() {
    let _mine = Mine;
    let domain = Domain::new();
    let reader = domain.reader();
    let _guard: Holds<Guard<'_>> = Holds(reader.pin());
    let _reader: Holds<QsbrReader> = Holds(domain.qsbr_reader());
}
