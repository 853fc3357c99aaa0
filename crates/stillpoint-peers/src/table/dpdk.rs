//! DPDK's `rte_hash`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{TableContender, TableKey, mixed};
use crate::c_functions::opaque;

opaque! {
    struct RawHash;
}

unsafe extern "C" {
    fn stillpoint_eal_init(count: c_int, arguments: *mut *mut c_char) -> bool;
    safe fn stillpoint_eal_bytes() -> u64;
    safe fn stillpoint_thread_join() -> bool;
    safe fn stillpoint_thread_leave();
    fn stillpoint_hash_new(name: *const c_char, entries: u32, key_len: u32) -> *mut RawHash;
    fn stillpoint_hash_free(table: *mut RawHash);
    fn stillpoint_hash_insert(table: *mut RawHash, key: *const c_void, value: u64) -> bool;
    fn stillpoint_hash_remove(table: *mut RawHash, key: *const c_void) -> bool;
    fn stillpoint_hash_reader_begin(table: *mut RawHash);
    fn stillpoint_hash_reader_end(table: *mut RawHash);
    fn stillpoint_hash_lookup(table: *mut RawHash, keys: *const c_void, count: usize) -> u64;
    fn stillpoint_hash_lookup_bulk(table: *mut RawHash, keys: *const c_void, count: usize) -> u64;
}

/// Initialises DPDK's environment abstraction layer for this process, with `megabytes` of memory, on reserved huge pages if
/// `huge_pages` is set. Later calls return the first call's result. The layer pins the calling thread to `cpu`.
///
/// # Errors
/// If the layer cannot be initialised. It prints the reason itself.
pub fn initialise_dpdk(megabytes: usize, huge_pages: bool, cpu: usize) -> Result<(), String> {
    initialise_eal(megabytes, huge_pages, &[], cpu)
}

/// The same with further arguments for the layer.
pub(crate) fn initialise_eal(
    megabytes: usize,
    huge_pages: bool,
    more: &[&str],
    cpu: usize,
) -> Result<(), String> {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // Without huge pages the layer refuses --in-memory. With --no-shconf it shares no files either.
    let pages: &[&str] =
        if huge_pages { &["--in-memory", "--single-file-segments"] } else { &["--no-huge", "--no-shconf"] };
    let answer = *ANSWER.get_or_init(|| {
        let (cpu, megabytes) = (cpu.to_string(), megabytes.to_string());
        let arguments =
            ["stillpoint", "--no-pci", "--no-telemetry", "--log-level=error", "-l", &cpu, "-m", &megabytes];
        let mut arguments: Vec<*mut c_char> = arguments
            .iter()
            .chain(pages)
            .chain(more)
            .map(|argument| CString::new(*argument).expect("no argument holds a zero").into_raw())
            .collect();
        let count = arguments.len() as c_int;
        arguments.push(std::ptr::null_mut());
        // The layer keeps the arguments, which are leaked.
        // SAFETY: `arguments` has this many strings, followed by a null.
        unsafe { stillpoint_eal_init(count, arguments.leak().as_mut_ptr()) }
    });
    if answer { Ok(()) } else { Err("DPDK refuses to start, see its message above".to_owned()) }
}

/// `rte_hash` with lock-free readers, several writers, and `rte_hash_rcu_qsbr_add`.
struct RteHash<K> {
    table: NonNull<RawHash>,
    bytes: u64,
    key: PhantomData<fn(K)>,
}

// SAFETY: the flags in c/rte_hash.c make the table usable from several threads.
unsafe impl<K> Send for RteHash<K> {}
// SAFETY: with the flags in c/rte_hash.c, several threads may use the table at the same time.
unsafe impl<K> Sync for RteHash<K> {}

/// The calling thread's number in DPDK, which writers need.
pub(crate) struct ThreadNumber(bool);

impl ThreadNumber {
    pub(crate) fn take() -> Self {
        Self(stillpoint_thread_join())
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if self.0 {
            stillpoint_thread_leave();
        }
    }
}

/// The registration of the calling thread with a table's QSBR variable. The thread is online, as readers must be.
struct Reading<'a, K> {
    table: &'a RteHash<K>,
    _number: ThreadNumber,
}

impl<'a, K: TableKey + Copy> Reading<'a, K> {
    fn begin(table: &'a RteHash<K>) -> Self {
        // The number comes first: the thread is registered under it.
        let number = ThreadNumber::take();
        // SAFETY: the table lives as long as the new value, whose drop ends the registration.
        unsafe { stillpoint_hash_reader_begin(table.table.as_ptr()) };
        Self { table, _number: number }
    }

    /// The sum of the values. A report of a quiescent state follows each lookup.
    fn lookup(&self, keys: &[K]) -> u64 {
        // SAFETY: the slice has this many keys of the table's key length, and this thread is registered.
        unsafe { stillpoint_hash_lookup(self.table.table.as_ptr(), keys.as_ptr().cast(), keys.len()) }
    }
}

impl<K> Drop for Reading<'_, K> {
    fn drop(&mut self) {
        // SAFETY: this thread was registered when this value was made, and still has its number.
        unsafe { stillpoint_hash_reader_end(self.table.table.as_ptr()) };
    }
}

impl<K: TableKey + Copy> RteHash<K> {
    fn insert(&self, key: &K, value: u64) -> bool {
        // SAFETY: the key has the length that the table was made for.
        unsafe { stillpoint_hash_insert(self.table.as_ptr(), ptr::from_ref(key).cast(), value) }
    }

    fn churn_one(&self, (key, value): &(K, u64)) -> u64 {
        // SAFETY: the key has the length that the table was made for.
        let there = unsafe { stillpoint_hash_remove(self.table.as_ptr(), ptr::from_ref(key).cast()) };
        u64::from(there & self.insert(key, *value))
    }

    fn new(entries: usize) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to be unique.
        let name = CString::new(format!("table{}", NUMBER.fetch_add(1, Ordering::Relaxed))).expect("no zero");
        let before = stillpoint_eal_bytes();
        let entries =
            u32::try_from(entries + entries / 8).map_err(|_| "rte_hash counts in 32 bits".to_owned())?;
        // SAFETY: the name ends with a zero, and the table copies it.
        let table = unsafe { stillpoint_hash_new(name.as_ptr(), entries, size_of::<K>() as u32) };
        let table = NonNull::new(table)
            .ok_or("no memory for rte_hash: reserve more huge pages in vm.nr_hugepages")?;
        Ok(Self { table, bytes: stillpoint_eal_bytes() - before, key: PhantomData })
    }
}

/// `rte_hash` for `entries` entries and an eighth more, with lock-free readers, several writers, and
/// `rte_hash_rcu_qsbr_add`. Its hash is CRC, which is not keyed.
///
/// # Errors
/// If there is no memory for the table.
pub fn rte_hash<K: TableKey + Copy>(entries: usize) -> Result<Box<dyn TableContender<K>>, String> {
    Ok(Box::new(RteHash::<K>::new(entries)?))
}

impl<K> Drop for RteHash<K> {
    fn drop(&mut self) {
        // SAFETY: `stillpoint_hash_new` made the table, and only `drop` frees it.
        unsafe { stillpoint_hash_free(self.table.as_ptr()) };
    }
}

impl<K: TableKey + Copy> TableContender<K> for RteHash<K> {
    fn insert_all(&self, keys: &[K]) -> usize {
        let _number = ThreadNumber::take();
        (0..).zip(keys).filter(|&(number, key)| self.insert(key, number)).count()
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        Reading::begin(self).lookup(keys)
    }

    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let _reading = Reading::begin(self);
        // SAFETY: the slice has this many keys of the table's key length, and this thread is registered.
        Some(unsafe { stillpoint_hash_lookup_bulk(self.table.as_ptr(), keys.as_ptr().cast(), keys.len()) })
    }

    /// Does not register the thread: writers that do not look up need no registration.
    fn churn(&self, pairs: &[(K, u64)]) -> Option<u64> {
        let _number = ThreadNumber::take();
        Some(pairs.iter().map(|pair| self.churn_one(pair)).sum())
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> Option<u64> {
        Some(mixed(
            &mut Reading::begin(self),
            lookups,
            pairs,
            |reading, key| reading.lookup(std::slice::from_ref(key)),
            |reading, pair| reading.table.churn_one(pair),
        ))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }
}
