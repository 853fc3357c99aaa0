//! How keys are hashed: by the library, or by a function of the program.

use std::ffi::c_void;
use std::hash::{BuildHasher, Hasher};

use stillpoint::table::RandomState;
use stillpoint_sys::tsan;

/// How keys are hashed.
pub(super) enum Hashing {
    Own(RandomState),
    Users(Users),
}

#[derive(Clone, Copy)]
pub(super) struct Users {
    pub(super) function: unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void) -> u64,
    pub(super) context: *mut c_void,
}

// SAFETY: the header says that the function is called by any thread with this context.
unsafe impl Send for Users {}
// SAFETY: as above.
unsafe impl Sync for Users {}

pub(super) enum HashingOne {
    Own(<RandomState as BuildHasher>::Hasher),
    Users(Users, u64),
}

impl BuildHasher for Hashing {
    type Hasher = HashingOne;

    #[inline]
    fn build_hasher(&self) -> HashingOne {
        match self {
            Self::Own(state) => HashingOne::Own(state.build_hasher()),
            Self::Users(users) => HashingOne::Users(*users, 0),
        }
    }
}

/// Each key is written by one call.
impl Hasher for HashingOne {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Own(hasher) => hasher.write(bytes),
            Self::Users(Users { function, context }, hash) => {
                let _heeded = tsan::heed();
                // SAFETY: whoever made the table says that it may be called with a key.
                *hash = unsafe { function(bytes.as_ptr().cast(), bytes.len(), *context) };
            }
        }
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        match self {
            Self::Own(hasher) => hasher.write_u32(key),
            Self::Users(..) => self.write(&key.to_ne_bytes()),
        }
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        match self {
            Self::Own(hasher) => hasher.write_u64(key),
            Self::Users(..) => self.write(&key.to_ne_bytes()),
        }
    }

    #[inline]
    fn write_u128(&mut self, key: u128) {
        match self {
            Self::Own(hasher) => hasher.write_u128(key),
            Self::Users(..) => self.write(&key.to_ne_bytes()),
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        match self {
            Self::Own(hasher) => hasher.finish(),
            Self::Users(_, hash) => *hash,
        }
    }
}
