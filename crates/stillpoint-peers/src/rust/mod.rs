//! The peers written in Rust.

pub(crate) mod crossbeam;
pub(crate) mod haphazard;
pub(crate) mod papaya;
pub(crate) mod seize;

/// The object that the micro benchmark retires, as large as the objects of the C peers.
type Object = [u64; 8];

/// How many objects are freed together, where the peer lets its user choose. The same number as in c/peer.h.
const RETIRED_TOGETHER: usize = 64;
