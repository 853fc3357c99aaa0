use stillpoint::pool::{Local, Pool};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(local: &Local<'_, for<'a> fn(&'a str)>) {
    let name = String::from("short");
    local.alloc().unwrap()(&name);
}

fn main() {
    let pool = Pool::<for<'a> fn(&'a str)>::new(1, || greet).unwrap();
    call(&pool.local().unwrap());
}
