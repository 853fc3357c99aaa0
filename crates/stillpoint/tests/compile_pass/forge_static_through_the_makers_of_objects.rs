use stillpoint::pool::{Objects, PoolBuilder};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn looked_after(objects: Objects<for<'a> fn(&'a str)>) -> Objects<for<'a> fn(&'a str)> {
    objects.reset(|function| function(&String::from("short")))
}

fn main() {
    let pool = PoolBuilder::new(1).build_with(looked_after(Objects::new(|| greet as _))).unwrap();
    assert!(pool.local().unwrap().alloc().is_some());
}
