use stillpoint::pool::Pool;

fn main() {
    let pool = Pool::new(1, || 7u64).unwrap();
    // The object may outlive its local.
    let object = pool.local().unwrap().alloc().unwrap();
    assert_eq!(*object, 7);
    #[cfg(test)] drop(object);
    drop(pool);
    #[cfg(not(test))] assert_eq!(*object, 7);
}
