use stillpoint::pool::Pool;

fn main() {
    let pool = Pool::new(1, || 7u64).unwrap();
    let object = pool.local().unwrap().alloc().unwrap();
    drop(pool);
    assert_eq!(*object, 7);
}
