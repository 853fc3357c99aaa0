use stillpoint::rcu::Domain;

struct Anywhere(std::marker::PhantomData<std::sync::Mutex<()>>);

fn main() {
    let _cell = Domain::new().cell(Anywhere(std::marker::PhantomData));
}
