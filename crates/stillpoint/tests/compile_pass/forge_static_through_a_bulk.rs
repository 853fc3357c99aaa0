use stillpoint::pool::{Bulk, Pool};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(bulk: &mut Bulk<'_, for<'a> fn(&'a str)>) {
    let name = String::from("short");
    *bulk.get_mut(0).unwrap() = greet;
    bulk.iter().for_each(|function| function(&name));
}

fn main() {
    let pool = Pool::<for<'a> fn(&'a str)>::new(1, || greet).unwrap();
    let local = pool.local().unwrap();
    let mut bulk = local.bulk(1);
    local.alloc_bulk(1, &mut bulk).unwrap();
    call(&mut bulk);
}
