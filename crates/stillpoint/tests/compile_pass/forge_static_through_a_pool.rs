use stillpoint::pool::Pool;

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(pool: &Pool<for<'a> fn(&'a str)>) {
    let name = String::from("short");
    pool.local().unwrap().alloc().unwrap()(&name);
}

fn main() {
    call(&Pool::new(1, || greet as _).unwrap());
}
