use stillpoint::pool::Pool;

fn main() {
    let pool = Pool::new(1, || 7u64).unwrap();
    let local = pool.local().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(local));
    });
}
