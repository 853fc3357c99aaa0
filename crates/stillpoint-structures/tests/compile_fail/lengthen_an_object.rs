use stillpoint::pool::{Obj, Pool};

fn shorten<'p>(object: Obj<'static, u64>, _pool: &'p Pool<u64>) -> Obj<'p, u64> {
    object
}

#[cfg(not(test))]
fn lengthen<'p>(object: Obj<'p, u64>, _pool: &'p Pool<u64>) -> Obj<'static, u64> {
    object
}

fn main() {
    let pool: &'static Pool<u64> = Box::leak(Box::new(Pool::new(1, || 7).unwrap()));
    assert_eq!(*shorten(pool.local().unwrap().alloc().unwrap(), pool), 7);
}
