//! Tables whose key size is known at run time.

use std::borrow::Borrow;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::ptr;

use stillpoint::rcu::{Domain, Region};
use stillpoint::table::{RandomState, Replaced, Table, TableGuard, TryInsertError};

use crate::border::{briefly, call, Refusal, Uncancelled};
use crate::domain::{domain_of, still_domain};
use crate::handle::{self, find, sized, Kind, Parts, Versioned};
use crate::reader::{self, region};

/// A table, to C.
#[repr(C)]
pub struct still_table {
    _private: [u8; 0],
}

pub type still_hash_fn =
    Option<unsafe extern "C-unwind" fn(key: *const c_void, bytes: usize, context: *mut c_void) -> u64>;
pub type still_entry_fn = Option<
    unsafe extern "C-unwind" fn(key: *const c_void, value: *mut c_void, context: *mut c_void) -> c_int,
>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_table_options {
    size: usize,
    capacity: usize,
    max_len: usize,
    hash: still_hash_fn,
    context: *mut c_void,
}

// SAFETY: numbers, and pointers that may be null.
unsafe impl Versioned for still_table_options {
    const NAME: &'static str = "struct still_table_options";
    const FIRST: usize = 40;
}

/// The longest key.
const LONGEST: usize = u16::MAX as usize;
/// Keys of one call of `still_table_get_many`.
const MOST: usize = 64;
/// Lookups that overlap.
const BURST: usize = 16;

/// A value: a word of the program's.
#[derive(Debug, Clone, Copy)]
struct Word(*mut c_void);

// SAFETY: a number to us; what it points to is the program's affair.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

/// How keys are hashed.
enum Hashing {
    Own(RandomState),
    Users(Users),
}

#[derive(Clone, Copy)]
struct Users {
    function: unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void) -> u64,
    context: *mut c_void,
}

// SAFETY: the header says that the function is called by any thread with this context.
unsafe impl Send for Users {}
// SAFETY: as above.
unsafe impl Sync for Users {}

enum HashingOne {
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
            // SAFETY: whoever made the table says that it may be called with a key.
            Self::Users(Users { function, context }, hash) => unsafe {
                *hash = function(bytes.as_ptr().cast(), bytes.len(), *context);
            },
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

/// Keys as a table has them.
trait Key: Hash + Eq + Borrow<Self::Sought> + Send + Sync + Sized + 'static {
    /// A key that is looked up.
    type Sought: Hash + Eq + ?Sized;

    /// Calls `action` with the key of C at `key`.
    ///
    /// # Safety
    /// There are `bytes` bytes.
    unsafe fn with<A>(key: *const u8, bytes: usize, action: impl FnOnce(&Self::Sought) -> A) -> A;

    fn own(key: &Self::Sought) -> Self;

    fn start(&self) -> *const c_void;

    /// Looks up as many keys as there are places for values; a bit for each that is found.
    ///
    /// # Safety
    /// There are as many keys of `bytes` bytes.
    unsafe fn get_many<R: Region>(
        view: &View<'_, Self, R>,
        keys: *const u8,
        bytes: usize,
        values: &mut [Place],
    ) -> u64 {
        let mut hits = 0;
        for (index, value) in values.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let found = unsafe { Self::with(keys.add(index * bytes), bytes, |key| view.get(key).copied()) };
            if let Some(Word(word)) = found {
                value.write(word);
                hits |= 1 << index;
            }
        }
        hits
    }
}

type View<'g, K, R> = TableGuard<'g, K, Word, Hashing, R>;
/// Where C wants a value.
type Place = MaybeUninit<*mut c_void>;

/// A key in the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Short<const N: usize>([u8; N]);

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
    /// There are `N` bytes.
    #[inline]
    unsafe fn at(key: *const u8) -> Self {
        // SAFETY: the caller's promise; an array of bytes has no alignment.
        Self(unsafe { *key.cast() })
    }
}

impl<const N: usize> Key for Short<N> {
    type Sought = Self;

    #[inline]
    unsafe fn with<A>(key: *const u8, _bytes: usize, action: impl FnOnce(&Self) -> A) -> A {
        // SAFETY: the caller's promise; the table of such keys has this size.
        action(&unsafe { Self::at(key) })
    }

    fn own(key: &Self) -> Self {
        *key
    }

    fn start(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    unsafe fn get_many<R: Region>(
        view: &View<'_, Self, R>,
        keys: *const u8,
        _: usize,
        values: &mut [Place],
    ) -> u64 {
        let mut hits = 0;
        for (burst, values) in values.chunks_mut(BURST).enumerate() {
            let first = burst * BURST;
            // The last burst may have fewer keys: the first one of it stands in for the others.
            // SAFETY: the caller's promise.
            let key = |index: usize| unsafe {
                Self::at(keys.add((first + if index < values.len() { index } else { 0 }) * N))
            };
            let found = view.get_many::<Self, BURST>(&std::array::from_fn(key));
            for (index, (value, found)) in values.iter_mut().zip(found).enumerate() {
                if let Some(Word(word)) = found {
                    value.write(*word);
                    hits |= 1 << (first + index);
                }
            }
        }
        hits
    }
}

/// A key behind a pointer.
struct Long(Box<Bytes>);

#[derive(PartialEq, Eq)]
#[repr(transparent)]
struct Bytes([u8]);

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
        // SAFETY: the caller's promise; the same layout.
        action(unsafe { &*(ptr::slice_from_raw_parts(key, bytes) as *const Bytes) })
    }

    fn own(key: &Bytes) -> Self {
        let boxed = Box::into_raw(Box::<[u8]>::from(&key.0));
        // SAFETY: from a box, of the same layout.
        Self(unsafe { Box::from_raw(boxed as *mut Bytes) })
    }

    fn start(&self) -> *const c_void {
        self.0 .0.as_ptr().cast()
    }
}

/// A table of some kind of keys.
///
/// # Safety
/// Where a method takes a key, it is the address of as many bytes as the keys of the table have.
trait Any: Send + Sync {
    unsafe fn get(&self, region: &reader::Region<'_>, key: *const u8) -> Option<Word>;
    unsafe fn get_many(&self, region: &reader::Region<'_>, keys: *const u8, values: &mut [Place]) -> u64;
    unsafe fn insert(&self, key: *const u8, value: Word) -> Result<Option<Word>, ()>;
    /// The value that was there.
    unsafe fn add(
        &self,
        region: &reader::Region<'_>,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, ()>;
    unsafe fn remove(&self, key: *const u8) -> Option<Word>;
    fn each(
        &self,
        region: &reader::Region<'_>,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int;
    fn len(&self) -> usize;
}

struct Typed<K: Key> {
    table: Table<K, Word, Hashing>,
    bytes: usize,
}

impl<K: Key> Typed<K> {
    unsafe fn get_within<R: Region>(&self, region: &R, key: *const u8) -> Option<Word> {
        let view = self.table.within(region);
        // SAFETY: the caller's promise.
        unsafe { K::with(key, self.bytes, |key| view.get(key).copied()) }
    }

    unsafe fn get_many_within<R: Region>(&self, region: &R, keys: *const u8, values: &mut [Place]) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { K::get_many(&self.table.within(region), keys, self.bytes, values) }
    }

    unsafe fn add_within<R: Region>(
        &self,
        region: &R,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, ()> {
        let view = self.table.within(region);
        // SAFETY: the caller's promise.
        let answer = unsafe { K::with(key, self.bytes, |key| view.try_insert(K::own(key), value).map(drop)) };
        match answer {
            Ok(()) => Ok(None),
            Err(TryInsertError::Occupied { current, .. }) => Ok(Some(*current)),
            Err(_) => Err(()),
        }
    }

    fn each_within<R: Region>(
        &self,
        region: &R,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int {
        let view = self.table.within(region);
        let answers = view.iter().map(|(key, value)| function(key.start(), *value));
        answers.into_iter().find(|answer| *answer != 0).unwrap_or(0)
    }

    fn old(answer: Replaced<'_, K, Word, Hashing>) -> Result<Option<Word>, ()> {
        // What is dropped here is retired by the table.
        answer.map(|old| old.map(|old| *old.value())).map_err(drop)
    }
}

/// Calls a method with whatever is the region.
macro_rules! within {
    ($region:expr, $table:ident.$method:ident($($argument:expr),*)) => {
        match $region {
            reader::Region::Guard(pinned) => $table.$method(pinned.guard(), $($argument),*),
            reader::Region::Qsbr(qsbr) => $table.$method(*qsbr, $($argument),*),
        }
    };
}

impl<K: Key> Any for Typed<K> {
    unsafe fn get(&self, region: &reader::Region<'_>, key: *const u8) -> Option<Word> {
        // SAFETY: the caller's promise.
        unsafe { within!(region, self.get_within(key)) }
    }

    unsafe fn get_many(&self, region: &reader::Region<'_>, keys: *const u8, values: &mut [Place]) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { within!(region, self.get_many_within(keys, values)) }
    }

    unsafe fn insert(&self, key: *const u8, value: Word) -> Result<Option<Word>, ()> {
        // SAFETY: the caller's promise.
        unsafe { K::with(key, self.bytes, |key| Self::old(self.table.insert(K::own(key), value))) }
    }

    unsafe fn add(
        &self,
        region: &reader::Region<'_>,
        key: *const u8,
        value: Word,
    ) -> Result<Option<Word>, ()> {
        // SAFETY: the caller's promise.
        unsafe { within!(region, self.add_within(key, value)) }
    }

    unsafe fn remove(&self, key: *const u8) -> Option<Word> {
        // SAFETY: the caller's promise.
        unsafe { K::with(key, self.bytes, |key| self.table.remove(key).map(|old| *old.value())) }
    }

    fn each(
        &self,
        region: &reader::Region<'_>,
        function: &mut dyn FnMut(*const c_void, Word) -> c_int,
    ) -> c_int {
        within!(region, self.each_within(function))
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

pub(crate) struct Tabled {
    table: Box<dyn Any>,
    domain: u64,
    max_len: usize,
    /// Calls of it may do anything.
    hash_is_users: bool,
}

impl Kind for Tabled {
    type C = still_table;
    const MARK: u32 = 0x5d0a_000b;
    const NAME: &'static str = "a table";
}

fn make<K: Key>(
    domain: &Domain,
    bytes: usize,
    options: Option<&still_table_options>,
) -> Result<Box<dyn Any>, Refusal> {
    let hashing = match options.and_then(|options| options.hash.map(|function| (function, options.context))) {
        Some((function, context)) => Hashing::Users(Users { function, context }),
        None => Hashing::Own(RandomState::default()),
    };
    let mut builder = Table::<K, Word>::builder_in(domain).hasher(hashing);
    if let Some(options) = options {
        builder = builder.capacity(options.capacity);
        if options.max_len > 0 {
            builder = builder.max_len(options.max_len);
        }
    }
    let table = builder.build().map_err(|error| Refusal::new(libc::ENOMEM, error.to_string()))?;
    Ok(Box::new(Typed { table, bytes }))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_new(
    domain: *const still_domain,
    key_size: usize,
    options: *const still_table_options,
) -> *mut still_table {
    call(|| {
        // SAFETY: the caller hands in a handle.
        let domain = unsafe { domain_of(domain) }?;
        let options = match options.is_null() {
            true => None,
            // SAFETY: the caller hands in options.
            false => Some(unsafe { sized(options) }?),
        };
        let make = match key_size {
            4 => make::<Short<4>>,
            8 => make::<Short<8>>,
            16 => make::<Short<16>>,
            40 => make::<Short<40>>,
            1..=LONGEST => make::<Long>,
            _ => return Err(Refusal::invalid(format!("keys have 1 to {LONGEST} bytes, not {key_size}"))),
        };
        let max_len = options.map_or(0, |options| options.max_len);
        let hash_is_users = options.is_some_and(|options| options.hash.is_some());
        let table = make(domain, key_size, options.as_ref())?;
        Ok(handle::make(Tabled { table, domain: domain.id(), max_len, hash_is_users }, Parts::default()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_free(table: *mut still_table) -> c_int {
    call(|| {
        // SAFETY: the caller hands in a handle, and nobody else uses it.
        drop(unsafe { find::<Tabled>(table)?.free() });
        Ok(0)
    })
}

unsafe fn table<'t>(table: *const still_table) -> Result<&'t Tabled, Refusal> {
    // SAFETY: the caller hands in a handle, which is not freed meanwhile.
    Ok(unsafe { find::<Tabled>(table)?.value() })
}

fn address(key: *const c_void) -> Result<*const u8, Refusal> {
    match key.is_null() {
        true => Err(Refusal::invalid("NULL was passed for a key")),
        false => Ok(key.cast()),
    }
}

/// Writes an answer where there is a place for it.
///
/// # Safety
/// `place` is null, or may be written.
unsafe fn tell(place: *mut *mut c_void, Word(word): Word) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(word) };
    }
}

impl Tabled {
    /// There is no room for an entry.
    fn full(&self) -> Refusal {
        match self.max_len {
            0 => Refusal::new(libc::ENOMEM, "there is no memory for another entry"),
            _ => Refusal::new(
                libc::ENOSPC,
                "the table has as many entries as it may, with those that were replaced or removed and wait for readers: \
                 remove some, give it a higher max_len, or find the reader",
            ),
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_table_get(
    handle: *const still_table,
    reader: *const c_void,
    key: *const c_void,
    value: *mut *mut c_void,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller hands in handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: as above.
        let (region, _within) = unsafe { region(reader, table.domain, table.hash_is_users) }?;
        // SAFETY: the caller hands in a key of the table's size.
        let Some(found) = (unsafe { table.table.get(&region, address(key)?) }) else { return Ok(0) };
        // SAFETY: the caller hands in a place, or null.
        unsafe { tell(value, found) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_get_many(
    handle: *const still_table,
    reader: *const c_void,
    keys: *const c_void,
    count: usize,
    values: *mut *mut c_void,
    hits: *mut u64,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller hands in handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: as above.
        let (region, _within) = unsafe { region(reader, table.domain, table.hash_is_users) }?;
        if count > MOST {
            return Err(Refusal::invalid(format!("{count} keys were passed; {MOST} is the limit")));
        }
        if values.is_null() || hits.is_null() {
            return Err(Refusal::invalid("NULL was passed for the place of an answer"));
        }
        // SAFETY: the caller hands in room for as many.
        let values = unsafe { std::slice::from_raw_parts_mut(values.cast::<Place>(), count) };
        // SAFETY: the caller hands in as many keys of the table's size.
        let found = unsafe { table.table.get_many(&region, address(keys)?, values) };
        // SAFETY: the caller hands in a place.
        unsafe { hits.write(found) };
        Ok(found.count_ones() as c_int)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_insert(
    handle: *mut still_table,
    key: *const c_void,
    value: *mut c_void,
    old: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller hands in a handle.
        let table = unsafe { table(handle) }?;
        // SAFETY: the caller hands in a key of the table's size.
        let Some(before) =
            (unsafe { table.table.insert(address(key)?, Word(value)) }).map_err(|()| table.full())?
        else {
            return Ok(0);
        };
        // SAFETY: the caller hands in a place, or null.
        unsafe { tell(old, before) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_add(
    handle: *mut still_table,
    reader: *const c_void,
    key: *const c_void,
    value: *mut c_void,
    found: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller hands in handles.
        let table = unsafe { table(handle) }?;
        // SAFETY: as above.
        let (region, _within) = unsafe { region(reader, table.domain, table.hash_is_users) }?;
        // SAFETY: the caller hands in a key of the table's size.
        match unsafe { table.table.add(&region, address(key)?, Word(value)) } {
            Ok(None) => Ok(0),
            Ok(Some(there)) => {
                // SAFETY: the caller hands in a place, or null.
                unsafe { tell(found, there) };
                Err(Refusal::new(libc::EEXIST, "the table has an entry with this key"))
            }
            Err(()) => Err(table.full()),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_remove(
    handle: *mut still_table,
    key: *const c_void,
    old: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller hands in a handle.
        let table = unsafe { table(handle) }?;
        // SAFETY: the caller hands in a key of the table's size.
        let Some(before) = (unsafe { table.table.remove(address(key)?) }) else { return Ok(0) };
        // SAFETY: the caller hands in a place, or null.
        unsafe { tell(old, before) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_len(handle: *const still_table) -> isize {
    // SAFETY: the caller hands in a handle.
    briefly(|| Ok(unsafe { table(handle) }?.table.len() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_each(
    handle: *const still_table,
    reader: *const c_void,
    function: still_entry_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let function = function.ok_or_else(|| Refusal::invalid("NULL was passed for a function"))?;
        // SAFETY: the caller hands in handles.
        let table = unsafe { table(handle) }?;
        // SAFETY: as above.
        let (region, _within) = unsafe { region(reader, table.domain, true) }?;
        // SAFETY: the caller says that it may be called so.
        Ok(table.table.each(&region, &mut |key, Word(value)| unsafe { function(key, value, context) }))
    })
}
