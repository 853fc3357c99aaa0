use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    #[cfg(not(test))] let reader = domain.qsbr_reader();
    #[cfg(test)] let reader = domain.reader();
    let _object = cell.protect(&reader);
}
