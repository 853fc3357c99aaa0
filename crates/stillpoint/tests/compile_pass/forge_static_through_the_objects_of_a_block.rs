use stillpoint::pool::{BlockObjects, Pool};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(objects: BlockObjects<'_, for<'a> fn(&'a str)>) {
    let name = String::from("short");
    objects.for_each(|mut object| {
        *object = greet;
        object(&name);
    });
}

fn main() {
    let pool = Pool::<for<'a> fn(&'a str)>::new(1, || greet).unwrap();
    call(pool.local().unwrap().alloc_block().unwrap().into_iter());
}
