//! A short queue of bulks between two threads, the same for every contender.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Objects of a bulk.
pub(super) const BULK: usize = 31;
/// The number of bulks that fit in; a power of two.
const ROOM: usize = 16;

/// For one sender and one receiver.
pub(super) struct Pipe {
    sent: Line,
    received: Line,
    bulks: Box<[std::cell::UnsafeCell<[*mut u8; BULK]>]>,
}

#[repr(align(128))]
struct Line(AtomicUsize);

// SAFETY: a place belongs to the sender until it is counted as sent, and to the receiver until it is counted as received.
unsafe impl Sync for Pipe {}

impl Pipe {
    pub(super) fn new() -> Self {
        let place = || std::cell::UnsafeCell::new([std::ptr::null_mut(); BULK]);
        Self {
            sent: Line(AtomicUsize::new(0)),
            received: Line(AtomicUsize::new(0)),
            bulks: (0..ROOM).map(|_| place()).collect(),
        }
    }

    /// Returns false if the pipe is full. Only one thread may send.
    pub(super) fn send(&self, bulk: &[*mut u8; BULK]) -> bool {
        // Relaxed: this thread's own count. Acquire: pairs with the release in `receive`.
        let (sent, received) = (self.sent.0.load(Ordering::Relaxed), self.received.0.load(Ordering::Acquire));
        if sent - received == ROOM {
            return false;
        }
        // SAFETY: the receiver has taken the bulk that was in this place.
        unsafe { *self.bulks[sent % ROOM].get() = *bulk };
        // Release: pairs with the acquire in `receive`.
        self.sent.0.store(sent + 1, Ordering::Release);
        true
    }

    /// Takes the oldest bulk. Only one thread may receive.
    pub(super) fn receive(&self) -> Option<[*mut u8; BULK]> {
        // Relaxed: this thread's own count. Acquire: pairs with the release in `send`.
        let (received, sent) = (self.received.0.load(Ordering::Relaxed), self.sent.0.load(Ordering::Acquire));
        if sent == received {
            return None;
        }
        // SAFETY: the sender has put a bulk here, and does not touch this place until the bulk is counted as
        // received.
        let bulk = unsafe { *self.bulks[received % ROOM].get() };
        // Release: pairs with the acquire in `send`.
        self.received.0.store(received + 1, Ordering::Release);
        Some(bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulks_come_in_order() {
        let pipe = Pipe::new();
        let bulk = |number: usize| [std::ptr::without_provenance_mut(number); BULK];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..1000).for_each(|number| {
                    while !pipe.send(&bulk(number)) {
                        std::thread::yield_now();
                    }
                })
            });
            for number in 0..1000 {
                let come = std::iter::from_fn(|| {
                    std::thread::yield_now();
                    Some(pipe.receive())
                });
                assert_eq!(come.flatten().next(), Some(bulk(number)));
            }
        });
    }
}
