use stillpoint::rcu::Domain;

fn begin_in_the_child_of_a_fork(domain: &Domain) {
    // SAFETY: called first thing in the child, which has one thread.
    unsafe { domain.reset_after_fork() };
    #[cfg(not(test))] domain.reset_after_fork();
}

fn main() {
    let _ = begin_in_the_child_of_a_fork;
}
