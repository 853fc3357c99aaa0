use stillpoint::pool::{Objects, Pool};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn looked_after(objects: Objects<for<'a> fn(&'a str)>) -> Objects<for<'a> fn(&'a str)> {
    objects.reset(|function| function(&String::from("short")))
}

fn main() {
    let pool = Pool::builder(1, looked_after(Objects::new(|| greet as _))).build().unwrap();
    assert!(pool.local().unwrap().alloc().is_some());
}
