use stillpoint::rcu::Domain;

fn main() {
    Domain::new().reset_after_fork();
}
