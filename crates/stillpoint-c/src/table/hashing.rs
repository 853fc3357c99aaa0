//! The hash function of a program.

use std::ffi::c_void;
use std::hash::{BuildHasher, Hasher};

use stillpoint_sys::tsan;

#[derive(Clone, Copy)]
pub(super) struct Users {
    pub(super) function: unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void) -> u64,
    pub(super) context: *mut c_void,
}

// SAFETY: by the header, any thread may call the function with this context.
unsafe impl Send for Users {}
// SAFETY: by the header, several threads may call the function with this context at the same time.
unsafe impl Sync for Users {}

impl BuildHasher for Users {
    type Hasher = UsersHash;

    #[inline]
    fn build_hasher(&self) -> UsersHash {
        UsersHash(*self, 0)
    }
}

/// The state of the hash. A key is hashed by one call of `write` with all of its bytes.
pub(super) struct UsersHash(Users, u64);

impl Hasher for UsersHash {
    fn write(&mut self, key: &[u8]) {
        let Users { function, context } = self.0;
        let _heeded = tsan::heed();
        // SAFETY: the caller of `still_table_new` promises that the function may be called with a key and this context.
        self.1 = unsafe { function(key.as_ptr().cast(), key.len(), context) };
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.1
    }
}
