//! `rte_rcu_qsbr` in DPDK's layout. `docs/design/capi.md` has the argument, whose steps are named here.

use std::ffi::{c_int, c_uint};
use std::fmt::{self, Display};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stillpoint_sys::tsan;

use super::{answered, print};
use crate::border::{briefly, call, time, Refusal};
use crate::own::own;

/// A variable, to C.
#[repr(C)]
pub struct rte_rcu_qsbr {
    _private: [u8; 0],
}

const LINE: usize = 64;

/// The two cache lines at the start of a variable.
#[repr(C)]
struct Head {
    token: AtomicU64,
    acked_token: AtomicU64,
    /// All grace periods up to this token are over.
    acked: AtomicU64,
    /// 1 while a check sleeps. A futex, which processes may share.
    attention: AtomicU32,
    _free: [u32; 9],
    num_elems: AtomicU32,
    num_threads: AtomicU32,
    max_threads: AtomicU32,
    _rest: [u32; 13],
}

/// The state of an id, in its own cache line.
#[repr(C)]
struct Count {
    /// 0 while the id is offline.
    cnt: AtomicU64,
    lock_cnt: AtomicU32,
    tid: AtomicU32,
    _rest: [u64; 6],
}

// The header has the same numbers.
const _: () = {
    assert!(size_of::<Head>() == 2 * LINE && size_of::<Count>() == LINE);
    assert!(offset_of!(Head, acked_token) == 8 && offset_of!(Head, acked) == 16);
    assert!(offset_of!(Head, attention) == 24 && offset_of!(Head, num_elems) == 64);
    assert!(offset_of!(Head, num_threads) == 68 && offset_of!(Head, max_threads) == 72);
    assert!(offset_of!(Count, lock_cnt) == 8 && offset_of!(Count, tid) == 12);
};

const BITS: usize = u64::BITS as usize;
const FIRST_TOKEN: u64 = 1;
const OFFLINE: u64 = 0;

/// How often a waiting check scans before it sleeps. This takes a few microseconds.
const SPINS: u32 = 100;
const FIRST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

fn words(max_threads: u32) -> usize {
    (max_threads as usize).div_ceil(BITS)
}

fn size(max_threads: u32) -> usize {
    let bitmap = (words(max_threads) * size_of::<u64>()).next_multiple_of(LINE);
    size_of::<Head>() + max_threads as usize * size_of::<Count>() + bitmap
}

/// A variable of the program, which code compiled against DPDK's header or ours has initialised.
#[derive(Clone, Copy)]
pub(super) struct Variable(NonNull<Head>);

// SAFETY: every field is atomic, and the memory is valid while the program uses the variable.
unsafe impl Send for Variable {}
// SAFETY: every field is atomic, and the memory is valid while the program uses the variable.
unsafe impl Sync for Variable {}

impl Variable {
    /// # Safety
    /// `variable` is NULL, or a variable whose memory is not freed while the new value is used.
    pub(super) unsafe fn new(variable: *mut rte_rcu_qsbr) -> Result<Self, Refusal> {
        let found = NonNull::new(variable.cast()).map(Self);
        found.ok_or_else(|| Refusal::invalid(c"NULL was passed for a quiescent state variable"))
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: the address is that of a variable, by the promise to `new`.
        unsafe { self.0.as_ref() }
    }

    fn counts(&self) -> &[Count] {
        let length = self.head().max_threads.load(Ordering::Relaxed) as usize;
        // SAFETY: `length` counts follow the head.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(1).cast(), length) }
    }

    fn bitmap(&self) -> &[AtomicU64] {
        let (counts, length) = (self.counts(), self.head().num_elems.load(Ordering::Relaxed) as usize);
        // SAFETY: `length` words follow the counts.
        unsafe { slice::from_raw_parts(counts.as_ptr().add(counts.len()).cast(), length) }
    }

    /// The count of an id, its word in the bitmap, and its bit.
    fn id(&self, id: c_uint) -> Result<(&Count, &AtomicU64, u64), Refusal> {
        let index = id as usize;
        let count = self.counts().get(index).ok_or_else(|| self.no_id(id))?;
        Ok((count, &self.bitmap()[index / BITS], 1 << (index % BITS)))
    }

    #[cold]
    fn no_id(&self, id: c_uint) -> Refusal {
        match self.counts().len() {
            0 => Refusal::invalid(c"the quiescent state variable has no ids: call rte_rcu_qsbr_init first"),
            length => Refusal::invalid(c"there is no thread id {}: the variable was initialised for 0 to {}")
                .with(id)
                .with(length - 1),
        }
    }

    /// As `rte_rcu_qsbr_start` in the header.
    pub(super) fn start(&self) -> u64 {
        let token = &self.head().token;
        tsan::release(token);
        // Pairs with the fence of a reader that goes online (step 1). Before the addition, so that it also comes before the scan of another
        // thread that has seen the token. On x86-64 the addition is a full fence itself.
        if !cfg!(target_arch = "x86_64") {
            fence(Ordering::SeqCst);
        }
        // Pairs with the acquire loads of the token by readers and scans.
        token.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Steps 2 and 3: calls `held_up` for each id that holds up a token, until `held_up` returns true. Returns the least count if no id holds
    /// up the token.
    #[inline]
    fn scan(&self, token: u64, mut held_up: impl FnMut(usize) -> bool) -> Option<u64> {
        // Acquire: the token is read before the counts, so what a check records began before its scan (step 3).
        let mut least = self.head().token.load(Ordering::Acquire);
        let mut is_over = true;
        let counts = self.counts();
        for (index, word) in self.bitmap().iter().enumerate() {
            // Acquire: pairs with the exchanges of `thread_register` and `thread_unregister`.
            let mut bits = word.load(Ordering::Acquire);
            tsan::acquire(word);
            while bits != 0 {
                let id = index * BITS + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(count) = counts.get(id) else { continue };
                // Acquire: pairs with the release by which readers store their counts (step 2).
                let reported = count.cnt.load(Ordering::Acquire);
                tsan::acquire(&count.cnt);
                if reported == OFFLINE {
                    continue;
                }
                if reported < token {
                    is_over = false;
                    if held_up(id) {
                        return None;
                    }
                }
                least = least.min(reported);
            }
        }
        is_over.then_some(least)
    }

    /// The lowest id that holds up a token, and the number of others.
    fn culprit(&self, token: u64) -> Option<(usize, u32)> {
        let mut found = None;
        self.scan(token, |id| {
            let (_, others) = found.get_or_insert((id, u32::MAX));
            *others = others.wrapping_add(1);
            false
        });
        found
    }

    /// Whether a grace period is over. If it is, records that for later checks.
    pub(super) fn is_over(&self, token: u64) -> bool {
        let head = self.head();
        // Acquire: pairs with the release below, by the check that has recorded the value.
        let acked = head.acked.load(Ordering::Acquire);
        tsan::acquire(&head.acked);
        if token <= acked {
            return true;
        }
        let Some(least) = self.scan(token, |_| true) else { return false };
        tsan::release(&head.acked);
        // Release: pairs with the acquire above and in the header; `acked_token` is for checks of DPDK's header.
        head.acked.store(least, Ordering::Release);
        head.acked_token.store(least, Ordering::Release);
        true
    }

    /// Step 4: waits, for at most `limit`. Returns whether the grace period is over.
    fn wait(&self, token: u64, limit: Option<Duration>) -> bool {
        // A limit beyond the range of the clock counts as no limit.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        for _ in 0..SPINS {
            if self.is_over(token) {
                return true;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            std::hint::spin_loop();
        }
        let attention = &self.head().attention;
        let mut sleep = FIRST_SLEEP;
        loop {
            attention.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.is_over(token) {
                return true;
            }
            let left = end.map_or(sleep, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            futex_wait(attention, 1, sleep.min(left));
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }

    /// Wakes the checks that sleep.
    fn wake(&self) {
        let attention = &self.head().attention;
        // Relaxed: a check that wakes scans the counts again.
        if attention.swap(0, Ordering::Relaxed) != 0 {
            futex_wake(attention);
        }
    }
}

/// Sleeps until a thread of any process wakes this one, or until `limit` is over. Does not sleep if the word does not hold `seen`.
fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
    // `limit` is at most 10 ms, so its seconds are 0.
    let limit = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32) };
    // SAFETY: the word and the time are valid until the call returns. On any error, the caller scans again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &limit) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lies in memory of the program.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

/// The calling thread's id (`gettid`). In the child of a `fork`, a handler of `cpp` forgets that of the parent's thread.
fn tid() -> u32 {
    let tid = &own().tid;
    if tid.get() == 0 {
        // SAFETY: the function has no preconditions.
        tid.set(unsafe { libc::gettid() } as u32);
    }
    tid.get()
}

fn no_ids() -> Refusal {
    Refusal::invalid(c"max_threads is 0: a quiescent state variable has at least 1 thread id")
}

#[no_mangle]
pub extern "C" fn still_rte_rcu_qsbr_get_memsize(max_threads: u32) -> usize {
    answered(|| match max_threads {
        0 => Err(no_ids()),
        _ => Ok(size(max_threads)),
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_init(v: *mut rte_rcu_qsbr, max_threads: u32) -> c_int {
    answered(|| {
        if max_threads == 0 {
            return Err(no_ids());
        }
        if v.addr() % LINE != 0 {
            let text = c"the memory of a quiescent state variable must be aligned to {} bytes";
            return Err(Refusal::invalid(text).with(LINE));
        }
        // SAFETY: the caller passes memory for a variable. Zeros are a valid variable without ids.
        let variable = unsafe {
            v.cast::<u8>().write_bytes(0, if v.is_null() { 0 } else { size(max_threads) });
            Variable::new(v)
        }?;
        let head = variable.head();
        head.max_threads.store(max_threads, Ordering::Relaxed);
        head.num_elems.store(words(max_threads) as u32, Ordering::Relaxed);
        head.token.store(FIRST_TOKEN, Ordering::Release);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_thread_register(
    v: *mut rte_rcu_qsbr,
    thread_id: c_uint,
) -> c_int {
    answered(|| {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        let (_, word, bit) = variable.id(thread_id)?;
        if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            // Checks that were compiled against DPDK's header look at all counts if this number equals max_threads.
            variable.head().num_threads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_thread_unregister(
    v: *mut rte_rcu_qsbr,
    thread_id: c_uint,
) -> c_int {
    answered(|| {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        let (count, word, bit) = variable.id(thread_id)?;
        if word.load(Ordering::Acquire) & bit != 0 {
            count.tid.store(0, Ordering::Relaxed);
            // The count is stored before the bit is cleared, because a check of DPDK's header that already waits for this id looks only at
            // the count. Release: pairs with the acquire load of the count in a check.
            tsan::release(&count.cnt);
            count.cnt.store(OFFLINE, Ordering::Release);
            tsan::release(word);
            if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                variable.head().num_threads.fetch_sub(1, Ordering::Relaxed);
            }
            variable.wake();
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_wake_(v: *mut rte_rcu_qsbr) {
    // SAFETY: the inline functions pass a variable.
    if let Ok(variable) = unsafe { Variable::new(v) } {
        variable.wake();
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_here_(place: *mut u32) {
    // SAFETY: the inline functions pass the word of an id.
    unsafe { AtomicU32::from_ptr(place) }.store(tid(), Ordering::Relaxed);
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_check_(v: *mut rte_rcu_qsbr, t: u64, wait: c_int) -> c_int {
    let check = || {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        Ok(c_int::from(if wait == 0 { variable.is_over(t) } else { variable.wait(t, None) }))
    };
    // The sleep is no cancellation point. After an error, the grace period counts as unfinished.
    briefly(check).max(0)
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_check_timeout(
    v: *mut rte_rcu_qsbr,
    t: u64,
    nanoseconds: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        let limit = time(nanoseconds)?;
        Ok(c_int::from(variable.wait(t, limit)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_synchronize(v: *mut rte_rcu_qsbr, thread_id: c_uint) {
    let synchronize = || {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        let token = variable.start();
        // For an invalid id, no quiescent state is reported, but the call still waits for the readers.
        if let Ok((count, ..)) = variable.id(thread_id) {
            // The caller holds nothing, so this reports its quiescent state, or brings the id online. The fence of step 1 follows.
            // Relaxed, both: only this thread uses the id; `tid` is a hint for reports, and is stored before the count as in
            // `thread_online`.
            if count.cnt.load(Ordering::Relaxed) == OFFLINE {
                count.tid.store(tid(), Ordering::Relaxed);
            }
            tsan::release(&count.cnt);
            count.cnt.swap(variable.head().token.load(Ordering::Acquire), Ordering::AcqRel);
            fence(Ordering::SeqCst);
            variable.wake();
        }
        Ok(c_int::from(variable.wait(token, None)))
    };
    call(synchronize);
}

/// A reader that holds up a grace period, to C.
#[repr(C)]
pub struct still_rte_rcu_report {
    pub size: usize,
    pub thread_id: u32,
    pub tid: u32,
    pub others: u32,
    pub locks: u32,
    pub reported: u64,
    pub name: [std::ffi::c_char; 16],
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_stall(
    v: *mut rte_rcu_qsbr,
    t: u64,
    stall: *mut still_rte_rcu_report,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        // SAFETY: the caller passes a place for the report.
        let stall = unsafe { stall.as_mut() };
        let stall = stall.ok_or_else(|| Refusal::invalid(c"NULL was passed for the place of a report"))?;
        if stall.size != size_of::<still_rte_rcu_report>() {
            let text =
                c"struct still_rte_rcu_report has size {}: set it to sizeof(struct still_rte_rcu_report), which is {}";
            return Err(Refusal::invalid(text).with(stall.size).with(size_of::<still_rte_rcu_report>()));
        }
        while let Some((id, others)) = variable.culprit(t) {
            let count = &variable.counts()[id];
            // Acquire: pairs with the release store of the count, before which the id's thread is stored.
            let reported = count.cnt.load(Ordering::Acquire);
            let tid = count.tid.load(Ordering::Relaxed);
            let locks = count.lock_cnt.load(Ordering::Relaxed);
            let name = name_of(tid);
            fence(Ordering::Acquire);
            // If the count is unchanged, no other thread has taken over the id, since going online would have stored t or more.
            if reported == OFFLINE || reported >= t || count.cnt.load(Ordering::Relaxed) != reported {
                continue;
            }
            *stall = still_rte_rcu_report {
                size: stall.size,
                thread_id: id as u32,
                tid: if name.is_some() { tid } else { 0 },
                others,
                locks,
                reported,
                name: name.unwrap_or_default(),
            };
            return Ok(1);
        }
        Ok(0)
    })
}

/// The name of a thread, empty if it is unknown. `None` if there is no such thread.
fn name_of(tid: u32) -> Option<[std::ffi::c_char; 16]> {
    // SAFETY: signal 0 only checks whether the thread exists.
    let answer = unsafe { libc::syscall(libc::SYS_tkill, tid, 0) };
    // SAFETY: `errno` is a thread-local variable of the calling thread.
    if tid == 0 || answer != 0 && unsafe { *libc::__errno_location() } == libc::ESRCH {
        return None;
    }
    let text = std::fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    let mut name = [0; 16];
    let bytes = text.iter().take_while(|byte| **byte != b'\n');
    name[..15].iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte as _);
    Some(name)
}

impl Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        let max_threads = head.max_threads.load(Ordering::Relaxed);
        writeln!(f, "quiescent state variable at {:p}", self.0)?;
        writeln!(f, "  memory size = {}", size(max_threads))?;
        writeln!(f, "  max threads = {max_threads}")?;
        writeln!(f, "  current threads = {}", head.num_threads.load(Ordering::Relaxed))?;
        let registered =
            |id: &usize| self.bitmap()[id / BITS].load(Ordering::Acquire) >> (id % BITS) & 1 == 1;
        let ids: Vec<_> = (0..max_threads as usize).filter(registered).collect();
        let list: Vec<_> = ids.iter().map(usize::to_string).collect();
        writeln!(f, "  registered thread ids = {}", list.join(" "))?;
        writeln!(f, "  token = {}", head.token.load(Ordering::Acquire))?;
        writeln!(f, "  least acknowledged token = {}", head.acked_token.load(Ordering::Acquire))?;
        for id in ids {
            let Count { cnt, lock_cnt, tid, .. } = &self.counts()[id];
            let (cnt, locks, tid) =
                (cnt.load(Ordering::Acquire), lock_cnt.load(Ordering::Relaxed), tid.load(Ordering::Relaxed));
            writeln!(f, "  thread id = {id}, count = {cnt}, lock count = {locks}, tid = {tid}")?;
        }
        Ok(())
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_dump(f: *mut libc::FILE, v: *mut rte_rcu_qsbr) -> c_int {
    answered(|| {
        // SAFETY: the caller passes a variable.
        let variable = unsafe { Variable::new(v) }?;
        if f.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for a file"));
        }
        // SAFETY: the caller passes a file.
        unsafe { print(f, &variable) };
        Ok(0)
    })
}
