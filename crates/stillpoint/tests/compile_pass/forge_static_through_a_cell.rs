use stillpoint::rcu::{Domain, RcuCell};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(cell: &RcuCell<for<'a> fn(&'a str)>, domain: &Domain) {
    let name = String::from("short");
    cell.load(&domain.reader().pin()).unwrap()(&name);
}

fn main() {
    let domain = Domain::new();
    call(&domain.cell(greet as _), &domain);
}
