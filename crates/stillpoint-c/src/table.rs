//! Tables with a key size that is chosen at run time.

mod hashing;
mod keys;
mod typed;

use std::ffi::{c_int, c_void};
use std::hash::BuildHasher;

use stillpoint::rcu::Domain;
use stillpoint::table::raw::{self, Address};
use stillpoint::table::{RandomState, Table};
use stillpoint_sys::tsan;

use self::hashing::Users;
use self::keys::{Key, Long, Place, Short, Word};
use self::typed::{Any, Lack, Quick, Typed};
use crate::border::{briefly, call, Refusal, Uncancelled};
use crate::domain::{domain_of, still_domain};
use crate::handle::{self, find, kind, peek_both, sized, versioned, Parts};
use crate::reader::{protector, region, still_protected, still_reader, Qsbr};

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
versioned!(unsafe still_table_options: 40);

/// The size of the longest key, in bytes.
const LONGEST: usize = u16::MAX as usize;
/// How many keys one call of `still_table_get_many` or `still_table_protect_many` may look up.
const MOST: usize = 64;
const _: () = assert!(MOST <= raw::MOST);

pub(crate) struct Tabled {
    /// What `still_table_get` tries first.
    quick: Option<Quick>,
    table: Box<dyn Any>,
    domain: u64,
    max_len: usize,
    /// Whether the hash function is the program's, which may call the library.
    hash_is_users: bool,
}

kind!(Tabled: still_table, 0x5d0a_000b, "a table");

/// Makes a table of one kind of keys, with the program's hash function or the library's.
fn make<K: Key>(
    domain: &Domain,
    bytes: usize,
    options: Option<&still_table_options>,
) -> Result<Box<dyn Any>, Refusal> {
    match options.and_then(|options| options.hash.map(|function| (function, options.context))) {
        Some((function, context)) => make_with::<K, _>(domain, bytes, options, Users { function, context }),
        None => make_with::<K, _>(domain, bytes, options, RandomState::default()),
    }
}

fn make_with<K: Key, S: BuildHasher + Send + Sync + 'static>(
    domain: &Domain,
    bytes: usize,
    options: Option<&still_table_options>,
    hasher: S,
) -> Result<Box<dyn Any>, Refusal> {
    let mut builder = Table::<K, Word>::builder_in(domain).hasher(hasher);
    if let Some(options) = options {
        builder = builder.capacity(options.capacity);
        if options.max_len > 0 {
            builder = builder.max_len(options.max_len);
        }
    }
    let text =
        c"there is no memory for a table of this capacity, or its limit is lower: ask for fewer entries";
    let table = builder.build().map_err(|_| Refusal::no_memory(text))?;
    Ok(Box::new(Typed { table, bytes }))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_new(
    domain: *const still_domain,
    key_size: usize,
    options: *const still_table_options,
) -> *mut still_table {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?;
        let options = match options.is_null() {
            true => None,
            // SAFETY: the caller passes options.
            false => Some(unsafe { sized(options) }?),
        };
        let make = match key_size {
            4 => make::<Short<4>>,
            8 => make::<Short<8>>,
            16 => make::<Short<16>>,
            40 => make::<Short<40>>,
            1..=LONGEST => make::<Long>,
            _ => {
                return Err(Refusal::invalid(c"keys have 1 to {} bytes, not {}").with(LONGEST).with(key_size))
            }
        };
        let max_len = options.map_or(0, |options| options.max_len);
        let hash_is_users = options.is_some_and(|options| options.hash.is_some());
        handle::make(|| {
            let table = make(domain, key_size, options.as_ref())?;
            // The program's hash function may call the library, and ThreadSanitizer is told what a lookup finds.
            let quick = if hash_is_users || tsan::is_there() { None } else { Some(table.quick()) };
            Ok((Tabled { quick, table, domain: domain.id(), max_len, hash_is_users }, Parts::default()))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_free(table: *mut still_table) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { find::<Tabled>(table)?.free() });
        Ok(0)
    })
}

unsafe fn table<'t>(table: *const still_table) -> Result<&'t Tabled, Refusal> {
    // SAFETY: the caller passes a handle, which is not freed meanwhile.
    Ok(unsafe { find::<Tabled>(table)?.value() })
}

fn address(key: *const c_void) -> Result<*const u8, Refusal> {
    match key.is_null() {
        true => Err(Refusal::invalid(c"NULL was passed for a key")),
        false => Ok(key.cast()),
    }
}

/// Writes a value to `place`, unless `place` is null.
///
/// # Safety
/// `place` is null, or may be written.
unsafe fn tell(place: *mut *mut c_void, word: Word) {
    word.acquire();
    if !place.is_null() {
        // SAFETY: the place is not null, so it may be written, by the caller's promise.
        unsafe { place.write(word.0) };
    }
}

impl Tabled {
    /// The reason why there is no room for an entry.
    fn full(&self, lack: Lack) -> Refusal {
        match (lack, self.max_len) {
            (Lack::Memory, _) | (_, 0) => Refusal::no_memory(c"there is no memory for another entry"),
            _ => Refusal::new(
                libc::ENOSPC,
                c"the table has reached max_len; replaced and removed entries count until no reader can hold them: \
                  remove some, raise max_len, or find the reader that holds them up",
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
    if !key.is_null() {
        // SAFETY: the caller passes handles.
        if let Some((table, qsbr)) = unsafe { peek_both::<Tabled, Qsbr>(handle, reader.cast()) } {
            // SAFETY: the caller passes handles, which are not freed meanwhile.
            let (table, qsbr): (&Tabled, &Qsbr) = unsafe { (table.value(), qsbr.value()) };
            if let Some(quick) = table.quick {
                // SAFETY: the caller passes a key of the table's size, and a place, or null.
                return unsafe { quick(handle, reader, key, value, (&raw const *table.table).cast(), qsbr) };
            }
        }
    }
    // SAFETY: the caller passes handles, a key of the table's size, and a place, or null.
    unsafe { get_slowly(handle, reader, key, value) }
}

/// Handles all other lookups, and the errors. A function of C, which does not unwind: so a function that ends in a call of this one needs no
/// frame.
#[cold]
#[inline(never)]
unsafe extern "C" fn get_slowly(
    handle: *const still_table,
    reader: *const c_void,
    key: *const c_void,
    value: *mut *mut c_void,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: the caller passes handles.
        let (region, _within) = unsafe { region(reader, table.domain, table.hash_is_users) }?;
        // SAFETY: the caller passes a key of the table's size.
        let Some(found) = (unsafe { table.table.get(&region, address(key)?) }) else { return Ok(0) };
        // SAFETY: the caller passes a place, or null.
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
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: the caller passes handles.
        let (region, _within) = unsafe { region(reader, table.domain, table.hash_is_users) }?;
        not_too_many(count)?;
        if values.is_null() || hits.is_null() {
            return Err(NO_PLACE);
        }
        // SAFETY: the caller passes room for `count` values.
        let values = unsafe { std::slice::from_raw_parts_mut(values.cast::<Place>(), count) };
        // SAFETY: the caller passes `count` keys of the table's size.
        let found = unsafe { table.table.get_many(&region, address(keys)?, values) };
        if tsan::is_there() {
            let is_hit = |at: &usize| found >> at & 1 != 0;
            // SAFETY: `get_many` has written the values that it found.
            (0..count).filter(is_hit).for_each(|at| Word(unsafe { values[at].assume_init() }).acquire());
        }
        // SAFETY: the caller passes a place.
        unsafe { hits.write(found) };
        Ok(found.count_ones() as c_int)
    })
}

const NO_PLACE: Refusal = Refusal::invalid(c"NULL was passed for the place of an answer");

fn not_too_many(count: usize) -> Result<(), Refusal> {
    match count > MOST {
        true => Err(Refusal::invalid(c"{} keys were passed; {} is the limit").with(count).with(MOST)),
        false => Ok(()),
    }
}

/// What a protected lookup has found, for C. A key that is absent gives what holds nothing.
fn protected(found: Option<Address>) -> still_protected {
    let Some((object, slot)) = found.flatten() else { return still_protected::NOTHING };
    Word(object.as_ptr().cast()).acquire();
    still_protected::new(object, slot)
}

#[no_mangle]
pub unsafe extern "C" fn still_table_protect(
    handle: *const still_table,
    reader: *mut still_reader,
    key: *const c_void,
    held: *mut still_protected,
) -> c_int {
    briefly(|| {
        if held.is_null() {
            return Err(NO_PLACE);
        }
        // SAFETY: the caller passes a place. It holds nothing if the call fails.
        unsafe { held.write(still_protected::NOTHING) };
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: the caller passes handles.
        let (reader, _within) = unsafe { protector(reader, table.domain, table.hash_is_users) }?;
        // SAFETY: the caller passes a key of the table's size.
        let found = unsafe { table.table.protect(reader, address(key)?) };
        // SAFETY: the caller passes a place.
        unsafe { held.write(protected(found)) };
        Ok(c_int::from(found.is_some()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_protect_many(
    handle: *const still_table,
    reader: *mut still_reader,
    keys: *const c_void,
    count: usize,
    held: *mut still_protected,
    hits: *mut u64,
) -> c_int {
    briefly(|| {
        if held.is_null() {
            return Err(NO_PLACE);
        }
        // SAFETY: the caller passes room for `count` of them. They hold nothing if the call fails. No place after the last
        // that a call may fill is touched: a count that is too large may be a mistake.
        (0..count.min(MOST)).for_each(|at| unsafe { held.add(at).write(still_protected::NOTHING) });
        not_too_many(count)?;
        if hits.is_null() {
            return Err(NO_PLACE);
        }
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        let _whole = table.hash_is_users.then(Uncancelled::new);
        // SAFETY: the caller passes handles.
        let (reader, _within) = unsafe { protector(reader, table.domain, table.hash_is_users) }?;
        let mut found_all = 0_u64;
        let mut found = |at: usize, found: Option<Address>| {
            found_all |= u64::from(found.is_some()) << at;
            // SAFETY: the caller passes room for `count` of them.
            unsafe { held.add(at).write(protected(found)) };
        };
        // SAFETY: the caller passes `count` keys of the table's size.
        unsafe { table.table.protect_many(reader, address(keys)?, count, &mut found) };
        // SAFETY: the caller passes a place.
        unsafe { hits.write(found_all) };
        Ok(found_all.count_ones() as c_int)
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
        // SAFETY: the caller passes a handle.
        let table = unsafe { table(handle) }?;
        // SAFETY: the caller passes a key of the table's size.
        let Some(before) = (unsafe { table.table.insert(address(key)?, Word(value).released()) })
            .map_err(|lack| table.full(lack))?
        else {
            return Ok(0);
        };
        // SAFETY: the caller passes a place, or null.
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
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        // In use: a write runs destructors.
        // SAFETY: the caller passes handles.
        let (region, _within) = unsafe { region(reader, table.domain, true) }?;
        // SAFETY: the caller passes a key of the table's size.
        match unsafe { table.table.add(&region, address(key)?, Word(value).released()) } {
            Ok(None) => Ok(0),
            Ok(Some(there)) => {
                // SAFETY: the caller passes a place, or null.
                unsafe { tell(found, there) };
                Err(Refusal::new(libc::EEXIST, c"the table has an entry with this key"))
            }
            Err(lack) => Err(table.full(lack)),
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
        // SAFETY: the caller passes a handle.
        let table = unsafe { table(handle) }?;
        // SAFETY: the caller passes a key of the table's size.
        let Some(before) = (unsafe { table.table.remove(address(key)?) }) else { return Ok(0) };
        // SAFETY: the caller passes a place, or null.
        unsafe { tell(old, before) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_remove_if(
    handle: *mut still_table,
    reader: *const c_void,
    key: *const c_void,
    expected: *const c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        // In use: a write runs destructors.
        // SAFETY: the caller passes handles.
        let (region, _within) = unsafe { region(reader, table.domain, true) }?;
        // SAFETY: the caller passes a key of the table's size.
        let is_removed = unsafe { table.table.remove_if(&region, address(key)?, Word(expected.cast_mut())) };
        if is_removed {
            Word(expected.cast_mut()).acquire();
        }
        Ok(c_int::from(is_removed))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_table_len(handle: *const still_table) -> isize {
    // SAFETY: the caller passes a handle.
    briefly(|| Ok(unsafe { table(handle) }?.table.len() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_poll(handle: *mut still_table) -> isize {
    // SAFETY: the caller passes a handle.
    call(|| Ok(unsafe { table(handle) }?.table.poll() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_pending(handle: *const still_table) -> isize {
    // SAFETY: the caller passes a handle.
    briefly(|| Ok(unsafe { table(handle) }?.table.pending() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_table_each(
    handle: *const still_table,
    reader: *const c_void,
    function: still_entry_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let function = function.ok_or_else(|| Refusal::invalid(c"NULL was passed for a function"))?;
        // SAFETY: the caller passes handles.
        let table = unsafe { table(handle) }?;
        // SAFETY: the caller passes handles.
        let (region, _within) = unsafe { region(reader, table.domain, true) }?;
        Ok(table.table.each(&region, &mut |key, value| {
            value.acquire();
            let _heeded = tsan::heed();
            // SAFETY: the caller promises that the function may be called with a key, a value and this context.
            unsafe { function(key, value.0, context) }
        }))
    })
}
