use stillpoint::pool::Pool;

fn main() {
    let pool = Pool::new(1, || 7u64).unwrap();
    let object = pool.local().unwrap().alloc().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(object));
        scope.spawn(|| drop(pool.local().unwrap()));
    });
}
