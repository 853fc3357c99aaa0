//! The peers written in Rust.

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) mod crossbeam;
pub(crate) mod haphazard;
pub(crate) mod papaya;
pub(crate) mod seize;

/// The object that the micro benchmark retires, as large as the objects of the C peers.
type Object = [u64; 8];

/// How many objects are freed together, where the peer lets its user choose. The same number as in c/peer.h.
const RETIRED_TOGETHER: usize = 64;

/// Exchanges new objects for the one in a shared pointer, and in the end nothing; `retire` takes over each that was unlinked.
fn exchange(iterations: u64, retire: impl Fn(*mut Object)) {
    let shared = AtomicPtr::<Object>::default();
    let exchange = |new| {
        let old = shared.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            retire(old);
        }
    };
    for number in 0..iterations {
        exchange(Box::into_raw(black_box(Box::new([number; 8]))));
    }
    exchange(ptr::null_mut());
}
