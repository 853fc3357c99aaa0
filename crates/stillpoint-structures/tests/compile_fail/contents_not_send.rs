use stillpoint::rcu::Domain;

struct Anywhere(std::marker::PhantomData<std::sync::Mutex<()>>);

/// May be shared freely, but must be dropped on its own thread.
#[cfg(not(test))] struct Local(std::marker::PhantomData<std::sync::MutexGuard<'static, ()>>);

fn main() {
    let _cell = Domain::new().cell(Anywhere(std::marker::PhantomData));
    #[cfg(not(test))] let _cell = Domain::new().cell(Local(std::marker::PhantomData));
}
