//! What programs that define `STILL_CHECKED` have given to the library, and what waits: to be given a second time, it is refused.
//! `docs/design/capi.md` says why this is correct, and what it does not find.
//!
//! A process has one list of chains. An entry is in it from just before its object, or its callback, is given until just before it is
//! destroyed, or called. So what is given has a function of this module, which takes the entry out and calls the function of the program.

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::hint;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use stillpoint::rcu::raw::{Callback, Object};
use stillpoint_sys::{os, tsan};

use crate::border::Refusal;
use crate::reason::Word;
use crate::reserve;

type Destroy = unsafe extern "C-unwind" fn(object: NonNull<()>, context: *const ());
type Function = unsafe extern "C-unwind" fn(callback: NonNull<Callback>);

/// What waits at an address.
#[derive(Clone, Copy)]
enum Waiting {
    /// An object, which is destroyed by this function with this context.
    Object(Destroy, *const ()),
    /// A callback, which is called by this function. Then the object at this address waits no more; null if none does.
    Callback(Function, *const ()),
    /// An object of a callback at another address.
    Called,
}

struct Entry {
    address: usize,
    what: Waiting,
    next: Link,
}

/// The address of an entry from `Box`, or null. It is changed with the lock.
type Link = AtomicPtr<Entry>;

/// Chains of entries.
type Chains = [Link; 1 << CHAIN_BITS];

/// A full background reclaimer, by default, has 16 entries in each chain.
const CHAIN_BITS: u32 = 16;

/// Null before something is given. Never freed.
static CHAINS: AtomicPtr<Chains> = AtomicPtr::new(ptr::null_mut());

/// The process whose thread has the lock of the chains, and [`IS_AWAITED`]; 0 if it is free.
///
/// A thread that the child of a `fork` does not have may have had it. So a process takes the lock from other processes. It finds the
/// chains whole: each change is one store.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// Set while a thread may sleep for the lock. No process has such a number.
const IS_AWAITED: u32 = 1 << 31;

/// While this value lives, no other thread changes the chains.
struct Locked;

impl Locked {
    fn new() -> Self {
        /// A holder that runs has finished by then.
        const SPINS: u32 = 128;
        // SAFETY: the function has no preconditions.
        let process = unsafe { libc::getpid() } as u32;
        let (mut turns, mut mark) = (0, 0);
        loop {
            // Relaxed: a hint.
            let holder = HOLDER.load(Ordering::Relaxed);
            // Acquire: pairs with the release in `drop`. What a thread of the parent did before the `fork`, the child has. Relaxed, the
            // others: it tries again.
            let becomes =
                |next| HOLDER.compare_exchange(holder, next, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if holder & !IS_AWAITED != process {
                if becomes(process | mark) {
                    return Self;
                }
            } else if turns < SPINS {
                turns += 1;
                hint::spin_loop();
            } else if holder & IS_AWAITED != 0 || becomes(holder | IS_AWAITED) {
                os::wait(&HOLDER, process | IS_AWAITED, None);
                // Others may sleep still, whom this thread then wakes.
                mark = IS_AWAITED;
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `new`.
        if HOLDER.swap(0, Ordering::Release) & IS_AWAITED != 0 {
            os::wake(&HOLDER, 1);
        }
    }
}

/// The chain of an address. `None` before the first entry.
fn chain(address: usize) -> Option<&'static Link> {
    // Acquire: pairs with the release in `make_chains`.
    // SAFETY: null, or chains that are never freed.
    let chains = unsafe { CHAINS.load(Ordering::Acquire).as_ref() }?;
    Some(&chains[address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - CHAIN_BITS)])
}

/// Makes the chains if there are none. They stay null if there is no memory.
#[cold]
fn make_chains() {
    let layout = Layout::new::<Chains>();
    // SAFETY: the layout has a size. Zeros are null links.
    let made = unsafe { alloc::alloc_zeroed(layout) }.cast::<Chains>();
    // Release: pairs with the acquire in `chain`. Relaxed on failure: `chain` loads them.
    let answer = CHAINS.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Relaxed);
    if answer.is_err() && !made.is_null() {
        // SAFETY: the memory has this layout, and nobody else has it.
        unsafe { alloc::dealloc(made.cast(), layout) };
    }
}

/// The link in this chain to the entry of an address, and the entry.
fn find<'c>(_: &'c Locked, chain: &'c Link, address: usize) -> Option<(&'c Link, NonNull<Entry>)> {
    let mut link = chain;
    loop {
        // Relaxed: the lock orders it.
        let entry = NonNull::new(link.load(Ordering::Relaxed))?;
        // SAFETY: an entry is freed after it was taken out, with the lock.
        let found = unsafe { &*entry.as_ptr() };
        if found.address == address {
            return Some((link, entry));
        }
        link = &found.next;
    }
}

/// Notes that something waits: true. False if there is no memory for an entry. Refuses it if something waits there already: that takes no
/// memory.
fn note(address: usize, what: Waiting) -> Result<bool, Refusal> {
    if chain(address).is_none() {
        make_chains();
    }
    let Some(chain) = chain(address) else { return Ok(false) };
    let locked = Locked::new();
    if find(&locked, chain, address).is_some() {
        return Err(Refusal::new(
            libc::EALREADY,
            c"what is at {} was given to the library before, and waits already to be destroyed or called: give it once, where it is unlinked",
        )
        .with(Word::Address(address)));
    }
    // SAFETY: the layout has a size.
    let made = reserve::closed(|| unsafe { alloc::alloc(Layout::new::<Entry>()) }).cast::<Entry>();
    if made.is_null() {
        return Ok(false);
    }
    // Relaxed: the lock orders it.
    let next = AtomicPtr::new(chain.load(Ordering::Relaxed));
    // SAFETY: the memory is for an entry.
    unsafe { made.write(Entry { address, what, next }) };
    // Release: the entry is complete in the child of a `fork` that finds it. For others, the lock orders it.
    chain.store(made, Ordering::Release);
    Ok(true)
}

/// Takes out what waits at an address.
fn take(address: usize) -> Option<Waiting> {
    let _ignored = tsan::ignore();
    let chain = chain(address)?;
    let locked = Locked::new();
    let (link, entry) = find(&locked, chain, address)?;
    // SAFETY: it is in the chain. Relaxed: the lock orders it, and the child of a `fork` finds it or not.
    unsafe { link.store((*entry.as_ptr()).next.load(Ordering::Relaxed), Ordering::Relaxed) };
    drop(locked);
    // SAFETY: the memory is that of `note`, where `alloc` has given it the layout of its type, and nobody finds it any more.
    Some(unsafe { Box::from_raw(entry.as_ptr()) }.what)
}

unsafe extern "C-unwind" fn destroy(object: NonNull<()>, _: *const ()) {
    let Some(Waiting::Object(destroy, context)) = take(object.addr().get()) else {
        unreachable!("an object that waits has an entry");
    };
    // SAFETY: the program promised that it may be called, now and with these.
    unsafe { destroy(object, context) }
}

unsafe extern "C-unwind" fn call(callback: NonNull<Callback>) {
    let Some(Waiting::Callback(function, object)) = take(callback.addr().get()) else {
        unreachable!("a callback that waits has an entry");
    };
    if !object.is_null() {
        take(object.addr());
    }
    // SAFETY: the program promised that it may be called, now and with this.
    unsafe { function(callback) }
}

/// Gives an object to the library by `give`. If the calling file defines `STILL_CHECKED`, refuses an object that waits.
#[inline]
pub(crate) fn object<const IS_CHECKED: bool>(
    object: Object,
    give: impl FnOnce(Object) -> Result<c_int, Refusal>,
) -> Result<c_int, Refusal> {
    let address = object.address.addr().get();
    if !IS_CHECKED || !note(address, Waiting::Object(object.destroy, object.context))? {
        return give(object);
    }
    let given = give(Object { destroy, context: ptr::null(), ..object });
    if given.is_err() {
        take(address);
    }
    given
}

/// Gives a callback, and the object that it may have, to the library by `give`, which gets the function that has to be called. If the
/// calling file defines `STILL_CHECKED`, refuses a callback and an object that wait.
#[inline]
pub(crate) fn callback<const IS_CHECKED: bool>(
    callback: NonNull<Callback>,
    object: *const (),
    function: Function,
    give: impl FnOnce(Function),
) -> Result<c_int, Refusal> {
    give(if IS_CHECKED { note_callback(callback, object, function)? } else { function });
    Ok(0)
}

/// The function that has to be called.
fn note_callback(
    callback: NonNull<Callback>,
    object: *const (),
    function: Function,
) -> Result<Function, Refusal> {
    let address = callback.addr().get();
    let (mut object, is_beside) = (object, object.addr() != address);
    if object.is_null() || !is_beside || !note(object.addr(), Waiting::Called)? {
        object = ptr::null();
    }
    let noted = note(address, Waiting::Callback(function, object));
    if !object.is_null() && !matches!(noted, Ok(true)) {
        take(object.addr());
    }
    Ok(if noted? { call } else { function })
}
