// In the place of the original's module of this name, which runs each test with its three modes of growth and with collectors of its own.
// Here a test runs on maps that grow, and on maps that have room for most tests. (The original's module could not be used in any case: it
// makes maps of any `K` and `V`, also of those that are not `Send + Sync + 'static`.)

use papaya::{HashMap, HashSet};

const ROOM: usize = 10_000;

pub fn with_map<K, V>(mut test: impl FnMut(&dyn Fn() -> HashMap<K, V>))
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    test(&HashMap::new);
    test(&|| HashMap::with_capacity(ROOM));
}

pub fn with_set<K: Send + Sync + 'static>(mut test: impl FnMut(&dyn Fn() -> HashSet<K>)) {
    test(&HashSet::new);
    test(&|| HashSet::with_capacity(ROOM));
}

/// Threads of a test. More than most machines have CPUs, so that threads are preempted.
pub fn threads() -> usize {
    4
}

/// The tests report their progress, which nobody reads here.
#[macro_export]
macro_rules! debug {
    ($($words:tt)*) => {{
        let _ = format_args!($($words)*);
    }};
}
