use stillpoint::rcu::Region;

struct Mine;

// SAFETY: none: the trait asks for this one, which has no public name.
unsafe impl stillpoint::rcu::region::sealed::Sealed for Mine {}

impl Region for Mine {}

fn main() {}
