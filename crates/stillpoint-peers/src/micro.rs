use std::sync::atomic::AtomicBool;

use crate::rust;

/// A single operation of a contender, which the caller times.
///
/// | operation | what it is |
/// |---|---|
/// | `quiescent` | report a quiescent state, with no grace period waiting |
/// | `pin`, `pin-linked` | enter and leave a read-side critical section, by inline code or by functions of the library |
/// | `protect` | load a pointer under protection, release the protection |
/// | `keep` | look up one of 1,000 values, keep it so that any thread may drop it, and drop it |
/// | `start` | begin a grace period |
/// | `check` | check a grace period that ended long ago |
/// | `retire` | allocate and write an object of 64 bytes, exchange it for the one in a shared pointer, retire the old one, and free in batches of 64; with liburcu, a worker on another CPU frees |
/// | `lookup`, `burst` | look up keys of 8 bytes in a table of 1,000, one or 32 at a time |
/// | `lookup-1m`, `burst-1m` | the same in a table of a million |
/// | `heavy` | wait for a grace period with no reader to wait for |
///
/// [`waits`] has one more, of two threads: `wait`, a wait for a grace period beside a reader that reads all the time.
///
/// A contender has rows only for the operations that it offers.
#[derive(Debug, Clone, Copy)]
pub struct Micro {
    /// Name of the contender.
    pub contender: &'static str,
    /// Name of the operation.
    pub operation: &'static str,
    /// Performs the operation this many times on the calling thread. The call also registers the thread, and frees what is left at the end.
    /// This takes some microseconds, or, with liburcu's `retire`, which waits for the worker, some milliseconds. Choose many iterations,
    /// or subtract the time of a run with 0 iterations.
    pub run: fn(u64),
}

/// An operation of one contender that measures its own time, since only a part of its work counts.
///
/// | operation | what it is |
/// |---|---|
/// | `call` | `call_rcu`, without the callbacks, which a worker on another CPU calls |
/// | `free-workers` | free idle workers of `call_rcu`, one after the other |
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Name of the contender.
    pub contender: &'static str,
    /// Name of the operation.
    pub operation: &'static str,
    /// Performs the operation this many times on the calling thread, and returns the total time in nanoseconds.
    pub nanoseconds: fn(u64) -> u64,
}

/// A writer that waits for grace periods, and the reader beside it. Both are run at the same time, on two threads.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// Name of the contender.
    pub contender: &'static str,
    /// Waits for this many grace periods, one after the other.
    pub wait: fn(u64),
    /// Registers the calling thread, sets the second flag, and reads until the first one is set.
    pub read: fn(&AtomicBool, &AtomicBool),
}

/// The writers of the contenders that can wait.
pub fn waits() -> Vec<Waits> {
    let groups: &[&[Waits]] = &[
        #[cfg(peer_urcu)]
        crate::native::urcu::WAITS,
        #[cfg(peer_dpdk)]
        crate::native::dpdk::WAITS,
    ];
    groups.concat()
}

/// The operations that measure their own time.
pub fn timed() -> Vec<Timed> {
    #[cfg(peer_urcu)]
    return crate::native::urcu::TIMED.to_vec();
    #[cfg(not(peer_urcu))]
    Vec::new()
}

/// The single operations of all contenders that this build has.
pub fn micro() -> Vec<Micro> {
    let groups: &[&[Micro]] = &[
        #[cfg(peer_c)]
        crate::native::header::MICRO,
        #[cfg(peer_urcu)]
        crate::native::urcu::MICRO,
        #[cfg(peer_dpdk)]
        crate::native::dpdk::MICRO,
        #[cfg(peer_ck)]
        crate::native::ck::MICRO,
        rust::crossbeam::MICRO,
        rust::seize::MICRO,
        rust::haphazard::MICRO,
        rust::papaya::MICRO,
    ];
    groups.concat()
}
