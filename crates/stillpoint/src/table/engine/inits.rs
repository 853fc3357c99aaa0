//! Entries that are being made: `get_or_init` makes a value once for each entry that it links.
//!
//! It is the one call of a table that waits for another thread, and what it waits for is foreign code. So whoever would have to wait within
//! foreign code, or in a region of the domain, is refused: two of them could wait for each other, or the maker for a grace period that the
//! waiter's region holds up. A maker that waits for an entry that a waiter protects, or for a region of another domain, is not noticed.

use std::sync::{Condvar, Mutex, PoisonError};

/// The hashes of the keys whose values are being made. Equal hashes are taken for equal keys: at worst, a call waits for the value of
/// another key.
#[derive(Debug, Default)]
pub(crate) struct Inits {
    hashes: Mutex<Vec<u64>>,
    ended: Condvar,
}

/// The right to make the value for a key. Its end, also by a panic, wakes those who wait.
#[derive(Debug)]
pub(crate) struct Making<'i> {
    inits: &'i Inits,
    hash: u64,
}

/// The call would have to wait, and must not.
#[derive(Debug)]
pub(crate) struct MustNotWait;

impl Inits {
    /// Begins to make a value. If another thread makes one for the same key, waits until it has ended, and returns `None`: the caller
    /// looks the key up again.
    pub(crate) fn begin(
        &self,
        hash: u64,
        may_wait: impl FnOnce() -> bool,
    ) -> Result<Option<Making<'_>>, MustNotWait> {
        // No code that panics runs under this lock.
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if !hashes.contains(&hash) {
            hashes.push(hash);
            return Ok(Some(Making { inits: self, hash }));
        }
        if !may_wait() {
            return Err(MustNotWait);
        }
        let is_made = |hashes: &mut Vec<u64>| hashes.contains(&hash);
        drop(self.ended.wait_while(hashes, is_made).unwrap_or_else(PoisonError::into_inner));
        Ok(None)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut hashes = self.inits.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let place = hashes.iter().position(|hash| *hash == self.hash);
        hashes.swap_remove(place.expect("only this value takes it out"));
        drop(hashes);
        self.inits.ended.notify_all();
    }
}
