//! papaya, for single operations. As a table it is in `table`.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;
use papaya::HashMap;

use crate::Micro;

pub(crate) const MICRO: &[Micro] = &[Micro {
    contender: "papaya",
    operation: "keep",
    // A value that outlives the guard is shared: its map has values in an `Arc`.
    run: |iterations| {
        static MAP: LazyLock<HashMap<u64, Arc<u64>, RandomState>> =
            LazyLock::new(|| (0..1_000).map(|key| (key, Arc::new(key))).collect());
        for iteration in 0..iterations {
            black_box(&MAP.pin().get(&(iteration * 7 % 1_000)).cloned());
        }
    },
}];
