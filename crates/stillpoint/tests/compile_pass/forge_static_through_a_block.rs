use stillpoint::pool::{Block, Pool};

fn greet(name: &str) {
    assert_eq!(name, "short");
}

fn call(block: &mut Block<'_, for<'a> fn(&'a str)>) {
    let name = String::from("short");
    *block.get_mut(0).unwrap() = greet;
    block.iter().for_each(|function| function(&name));
}

fn main() {
    let pool = Pool::<for<'a> fn(&'a str)>::new(1, || greet).unwrap();
    call(&mut pool.local().unwrap().alloc_block().unwrap());
}
