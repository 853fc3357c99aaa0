//! Keys that are hashed by a function of the program. All others are hashed as the library does it.

use std::ffi::c_void;
use std::hash::{BuildHasher, Hasher};

use stillpoint_sys::tsan;

#[derive(Clone, Copy)]
pub(super) struct Users {
    pub(super) function: unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void) -> u64,
    pub(super) context: *mut c_void,
}

// SAFETY: the header says that the function is called by any thread with this context.
unsafe impl Send for Users {}
// SAFETY: as above.
unsafe impl Sync for Users {}

impl BuildHasher for Users {
    type Hasher = UsersHash;

    #[inline]
    fn build_hasher(&self) -> UsersHash {
        UsersHash(*self, 0)
    }
}

/// The hash of a key, which is written by one call, of its bytes.
pub(super) struct UsersHash(Users, u64);

impl Hasher for UsersHash {
    fn write(&mut self, key: &[u8]) {
        let Users { function, context } = self.0;
        let _heeded = tsan::heed();
        // SAFETY: whoever made the table says that it may be called with a key.
        self.1 = unsafe { function(key.as_ptr().cast(), key.len(), context) };
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.1
    }
}
