use stillpoint::rcu::Domain;

/// May be shared freely, but must be dropped on its own thread.
struct Local(std::marker::PhantomData<std::sync::MutexGuard<'static, ()>>);

fn main() {
    let _cell = Domain::new().cell(Local(std::marker::PhantomData));
}
