use stillpoint::rcu::{Domain, RcuArray};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(array: &RcuArray<for<'a> fn(&'a str)>, domain: &Domain) {
    let name = String::from("short");
    array.load(0, &domain.reader().pin()).unwrap()(&name);
}

fn main() {
    let domain = Domain::new();
    call(&RcuArray::new_in(&domain, 1, |_| Some(Box::new(greet as _))), &domain);
}
