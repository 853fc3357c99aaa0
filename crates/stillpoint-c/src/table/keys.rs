//! The keys of tables. Keys of some sizes lie in the entries, all others behind a pointer.

use std::borrow::Borrow;
use std::ffi::c_void;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::ptr;

use stillpoint::rcu::Region;
use stillpoint::table::{raw, Table};
use stillpoint_sys::tsan;

use crate::reserve;

/// A value: a word of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word(pub(super) *mut c_void);

// SAFETY: the library treats the pointer as a number, and never follows it.
unsafe impl Send for Word {}
// SAFETY: the library treats the pointer as a number, and never follows it.
unsafe impl Sync for Word {}

impl Word {
    /// The address of the object that the value points to.
    #[inline]
    pub(super) fn object(&self) -> *mut () {
        self.0.cast()
    }

    /// Tells ThreadSanitizer that what this thread has done so far happens before what a thread does after it finds the value.
    #[inline]
    pub(super) fn released(self) -> Self {
        if tsan::is_there() {
            tsan::release(tsan::place_of(self.0.addr()));
        }
        self
    }

    #[inline]
    pub(super) fn acquire(self) {
        if tsan::is_there() {
            tsan::acquire(tsan::place_of(self.0.addr()));
        }
    }
}

/// A kind of keys.
pub(super) trait Key: Hash + Eq + Borrow<Self::Sought> + Send + Sync + Sized + 'static {
    /// The form of a key in a lookup.
    type Sought: Hash + Eq + ?Sized;

    /// Calls `action` with the key of C at `key`.
    ///
    /// # Safety
    /// `key` points to `bytes` bytes.
    unsafe fn with<A>(key: *const u8, bytes: usize, action: impl FnOnce(&Self::Sought) -> A) -> A;

    /// The key of C at `key`, where it lies.
    ///
    /// # Safety
    /// As for [`with`](Key::with); the bytes stay as they are during `'k`.
    unsafe fn at<'k>(key: *const u8, bytes: usize) -> &'k Self::Sought;

    /// A key for an entry. `None` if there is no memory for it.
    fn own(key: &Self::Sought) -> Option<Self>;

    fn start(&self) -> *const c_void;

    /// Looks up a key for each place in `values`. Returns a bit for each key that it finds.
    ///
    /// # Safety
    /// At `keys` there are as many keys of `bytes` bytes as there are values.
    unsafe fn get_many<S: BuildHasher, R: Region>(
        table: &Table<Self, Word, S>,
        region: &R,
        keys: *const u8,
        bytes: usize,
        values: &mut [Place],
    ) -> u64 {
        let (view, mut hits) = (table.within(region), 0);
        for (index, value) in values.iter_mut().enumerate() {
            // SAFETY: at `keys` there is a key of `bytes` bytes for each value, by the caller's promise.
            let found = unsafe { Self::with(keys.add(index * bytes), bytes, |key| view.get(key).copied()) };
            if let Some(Word(word)) = found {
                value.write(word);
                hits |= 1 << index;
            }
        }
        hits
    }
}

/// The place where C wants a value.
pub(super) type Place = MaybeUninit<*mut c_void>;

/// A key in the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Short<const N: usize>([u8; N]);

impl<const N: usize> Hash for Short<N> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match N {
            4 => state.write_u32(u32::from_ne_bytes(self.0[..4].try_into().expect("four bytes"))),
            8 => state.write_u64(u64::from_ne_bytes(self.0[..8].try_into().expect("eight bytes"))),
            16 => state.write_u128(u128::from_ne_bytes(self.0[..16].try_into().expect("sixteen bytes"))),
            _ => state.write(&self.0),
        }
    }
}

impl<const N: usize> Short<N> {
    /// # Safety
    /// `key` points to `N` bytes.
    #[inline]
    unsafe fn copied(key: *const u8) -> Self {
        // SAFETY: the caller's promise; an array of bytes needs no alignment.
        Self(unsafe { *key.cast() })
    }
}

impl<const N: usize> Key for Short<N> {
    type Sought = Self;

    #[inline]
    unsafe fn with<A>(key: *const u8, _bytes: usize, action: impl FnOnce(&Self) -> A) -> A {
        // SAFETY: the caller's promise; the table of such keys has this size.
        action(&unsafe { Self::copied(key) })
    }

    #[inline]
    unsafe fn at<'k>(key: *const u8, _bytes: usize) -> &'k Self {
        // SAFETY: the caller's promise; the table of such keys has this size, the type is transparent, and an array of bytes needs no
        // alignment.
        unsafe { &*key.cast() }
    }

    fn own(key: &Self) -> Option<Self> {
        Some(*key)
    }

    fn start(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    unsafe fn get_many<S: BuildHasher, R: Region>(
        table: &Table<Self, Word, S>,
        region: &R,
        keys: *const u8,
        _: usize,
        values: &mut [Place],
    ) -> u64 {
        let (mut hits, mut done) = (0, 0);
        // Looks the keys up in bursts of 32, then of 8, then one by one.
        while let Some(burst) = values[done..].first_chunk_mut() {
            // SAFETY: at `keys` there are `N` bytes for each value, by the caller's promise, and these values begin at `done`.
            hits |= unsafe { Self::burst::<32, S, R>(table, region, keys.add(done * N), burst) } << done;
            done += 32;
        }
        while let Some(burst) = values[done..].first_chunk_mut() {
            // SAFETY: as above.
            hits |= unsafe { Self::burst::<8, S, R>(table, region, keys.add(done * N), burst) } << done;
            done += 8;
        }
        while let Some(burst) = values[done..].first_chunk_mut() {
            // SAFETY: as above.
            hits |= unsafe { Self::burst::<1, S, R>(table, region, keys.add(done * N), burst) } << done;
            done += 1;
        }
        hits
    }
}

impl<const N: usize> Short<N> {
    /// Looks up `B` keys with overlapping memory accesses. Returns a bit for each key that it finds.
    ///
    /// # Safety
    /// There are `B` keys of `N` bytes at `keys`.
    unsafe fn burst<const B: usize, S: BuildHasher, R: Region>(
        table: &Table<Self, Word, S>,
        region: &R,
        keys: *const u8,
        values: &mut [Place; B],
    ) -> u64 {
        // SAFETY: at `keys` there are `B` keys of `N` bytes, by the caller's promise; no value lies there, by the header's.
        let keys: &[Self; B] = unsafe { &*keys.cast() };
        let mut hits = 0;
        raw::get_many(table, region, keys, |index, found| {
            if let Some(Word(word)) = found {
                values[index].write(*word);
                hits |= 1 << index;
            }
        });
        hits
    }
}

/// A key behind a pointer.
pub(super) struct Long(Box<Bytes>);

#[derive(PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Bytes([u8]);

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl Hash for Long {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Long {}

impl Borrow<Bytes> for Long {
    fn borrow(&self) -> &Bytes {
        &self.0
    }
}

impl Key for Long {
    type Sought = Bytes;

    unsafe fn with<A>(key: *const u8, bytes: usize, action: impl FnOnce(&Bytes) -> A) -> A {
        // SAFETY: the caller's promise.
        action(unsafe { Self::at(key, bytes) })
    }

    unsafe fn at<'k>(key: *const u8, bytes: usize) -> &'k Bytes {
        // SAFETY: the caller's promise; `Bytes` is transparent.
        unsafe { &*(ptr::slice_from_raw_parts(key, bytes) as *const Bytes) }
    }

    fn own(key: &Bytes) -> Option<Self> {
        let mut own = Vec::new();
        reserve::closed(|| own.try_reserve_exact(key.0.len())).ok()?;
        own.extend_from_slice(&key.0);
        let boxed = Box::into_raw(own.into_boxed_slice());
        // SAFETY: the pointer came from a box, and `Bytes` is transparent.
        Some(Self(unsafe { Box::from_raw(boxed as *mut Bytes) }))
    }

    fn start(&self) -> *const c_void {
        self.0 .0.as_ptr().cast()
    }
}
