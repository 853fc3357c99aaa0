use stillpoint::rcu::Domain;

/// Shared freely, but dropped on its own thread alone.
struct Local(std::marker::PhantomData<std::sync::MutexGuard<'static, ()>>);

fn main() {
    let _cell = Domain::new().cell(Local(std::marker::PhantomData));
}
