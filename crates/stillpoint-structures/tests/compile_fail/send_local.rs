use stillpoint::pool::Pool;

fn main() {
    let pool = Pool::new(1, || 7u64).unwrap();
    let local = pool.local().unwrap();
    let object = local.alloc().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(object));
        #[cfg(not(test))] scope.spawn(move || drop(local));
        scope.spawn(|| drop(pool.local().unwrap()));
    });
}
