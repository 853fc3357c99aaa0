//! The default domain: for programs that name neither a domain nor a reader.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{compiler_fence, Ordering};
use std::time::Duration;

use super::domain::{Domain, DomainBuilder};
use super::engine::core::record::{Record, Slot};
use super::engine::core::registry::Claim;
use super::engine::queue::shelf::OwnShelf;
use super::engine::wait::error::SynchronizeError;
use super::engine::Core;
use super::error::BuildError;
use super::reader::{Guard, Reader};
use super::retired::Retired;
use super::weak_domain::WeakDomain;
use stillpoint_sys::os::ThreadEnd;
use stillpoint_sys::sync::Lasting;

/// It is never dropped.
static DEFAULT: Lasting<Domain> = Lasting::new();

/// The default domain of the process, which [`RcuCell::new`](super::RcuCell::new), [`pin`] and similar functions use. It is
/// for programs with one group of readers.
///
/// The first use makes it, in the best fence mode, unless it was [built](DomainBuilder::build_default) before. It is never
/// dropped: what waits in it when the process exits is not freed. Its name is `default`, unless it was given another one.
///
/// ```
/// use stillpoint::rcu;
///
/// let domain = rcu::default_domain();
/// assert_eq!(domain.name(), "default");
/// let cell = rcu::RcuCell::new(1);
/// assert_eq!(cell.protect(&domain.reader()).as_deref(), Some(&1)); // a named reader works as well
/// ```
pub fn default_domain() -> &'static Domain {
    // Building in the best mode cannot fail: the mode was probed, and nothing else is needed.
    DEFAULT.get_or_make(|| Domain::builder().name("default").build().expect("the best mode was probed"))
}

impl DomainBuilder {
    /// Makes the [default domain](default_domain) of the process. Call it before anything uses the default domain, for example in
    /// the first lines of `main`. Libraries should leave this to the program.
    ///
    /// # Errors
    /// [`DefaultInUse`](BuildError::DefaultInUse) if there is a default domain already; otherwise as
    /// [`build`](DomainBuilder::build).
    ///
    /// ```
    /// use stillpoint::rcu::{self, BuildError, Domain};
    ///
    /// Domain::builder().name("default").max_pending(1_000_000).build_default()?;
    /// assert_eq!(rcu::default_domain().stats().max_pending, Some(1_000_000));
    /// assert_eq!(Domain::builder().build_default().unwrap_err(), BuildError::DefaultInUse);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn build_default(mut self) -> Result<&'static Domain, BuildError> {
        if DEFAULT.get().is_some() {
            return Err(BuildError::DefaultInUse);
        }
        self.name.get_or_insert_with(|| "default".to_owned());
        let domain = self.build()?;
        DEFAULT.set(domain).map_err(|_| BuildError::DefaultInUse)
    }
}

/// Begins a region of the calling thread in the [default domain](default_domain): until the guard is dropped, nothing is freed
/// that was linked when the region began or later. See [`Reader::pin`].
///
/// The first use registers the thread; later uses cost one load more than [`Reader::pin`]. The guard may be kept in a
/// thread-local: the thread's record is given back when its last guard and its last [`Protected`](super::Protected) are gone.
///
/// Three kinds of records are never given back:
/// - the record of a guard that outlives even the last round of the thread's destructors, which holds things up as a forgotten
///   guard does;
/// - the record of a thread that first uses the domain after that round, which holds nothing up;
/// - each record in a process that had no `pthread_key_t` left, which holds nothing up either.
///
/// With each of them, the record is lost that the thread has for an [`OwnedProtected`](super::OwnedProtected), if it had one.
///
/// On Windows there is one round, among the destructors of thread-locals: a thread-local that was used before the thread's first
/// use of the default domain may outlive the record.
///
/// ```
/// use stillpoint::rcu::{self, RcuCell};
///
/// let (first, second) = (RcuCell::new(1), RcuCell::new(2));
/// let guard = rcu::pin();
/// assert_eq!(first.load(&guard).unwrap() + second.load(&guard).unwrap(), 3);
/// ```
#[inline]
pub fn pin() -> Guard<'static> {
    local().reader.pin()
}

/// As [`pin`], but never registers the thread: `None` if the thread has not used the default domain, or is about to end.
/// Allocates nothing and takes no lock. So on Linux, signal handlers may call it, and load within the region. (On other systems,
/// dropping the guard takes locks to wake threads: do not call this in a handler there.) In a symmetric domain, it costs a full
/// fence, even within a region.
///
/// A handler must drop each guard that it takes before it returns: a guard that it keeps does not protect objects. It must drop
/// no guard that other code took. If futures await grace periods of the domain, dropping a guard may wake them.
/// If their executor does not allow that in a handler, have no futures in the domain. In a library that was loaded by `dlopen`,
/// a thread's first use of its thread-locals may allocate: there, call this once in each thread, outside of handlers. If the handler interrupts
/// a thread that is [offline], the thread counts as online afterwards.
///
/// ```
/// use stillpoint::rcu;
///
/// std::thread::spawn(|| {
///     assert!(rcu::try_pin().is_none());
///     drop(rcu::pin());
///     assert!(rcu::try_pin().is_some());
/// })
/// .join()
/// .unwrap();
/// ```
#[inline]
pub fn try_pin() -> Option<Guard<'static>> {
    present().map(|local| local.reader.pin_in_handler())
}

/// As [`Reader::offline`], for the calling thread in the [default domain](default_domain): for a hook that runs before the thread sleeps.
/// False also if the thread has not used the domain yet.
///
/// ```
/// use stillpoint::rcu::{self, RcuCell};
///
/// let route = RcuCell::new("eth0");
/// assert_eq!(route.get().as_deref(), Some(&"eth0"));
/// assert!(rcu::offline()); // nothing interrupts a processor for this thread while it sleeps
/// assert_eq!(route.get().as_deref(), Some(&"eth0")); // the thread is back
/// ```
pub fn offline() -> bool {
    present().is_some_and(|local| local.reader.offline())
}

/// As [`Domain::barrier`], for the [default domain](default_domain).
///
/// # Errors
/// As [`Domain::barrier`].
///
/// # Panics
/// As [`Domain::barrier`].
///
/// ```
/// use stillpoint::rcu::{self, RcuCell};
///
/// let cell = RcuCell::new(1);
/// cell.set(2);
/// rcu::barrier()?; // the 1 has been dropped
/// # Ok::<(), rcu::wait::SynchronizeError>(())
/// ```
pub fn barrier() -> Result<(), SynchronizeError> {
    default_domain().barrier()
}

/// As [`Domain::barrier_timeout`], for the [default domain](default_domain).
///
/// # Errors
/// As [`Domain::barrier_timeout`].
///
/// # Panics
/// As [`Domain::barrier`].
///
/// ```
/// use std::time::Duration;
/// use stillpoint::rcu::wait::SynchronizeError;
/// use stillpoint::rcu::{self, RcuCell};
///
/// let cell = RcuCell::new(1);
/// let object = cell.get();
/// cell.set(2);
/// let late = std::thread::spawn(|| rcu::barrier_timeout(Duration::from_millis(2))).join().unwrap();
/// assert!(matches!(late, Err(SynchronizeError::Pinned { .. })));
/// drop(object);
/// rcu::barrier()?;
/// # Ok::<(), SynchronizeError>(())
/// ```
pub fn barrier_timeout(limit: Duration) -> Result<(), SynchronizeError> {
    default_domain().barrier_timeout(limit)
}

/// As [`Domain::reset_after_fork`], for the [default domain](default_domain). Until it is called, the child frees nothing that
/// other threads of the parent held, and a wait in the child may never end.
///
/// # Safety
/// As for [`Domain::reset_after_fork`].
///
/// ```no_run
/// # use stillpoint::rcu;
/// // SAFETY: nothing but async-signal-safe functions is called in the child before this.
/// if unsafe { libc::fork() } == 0 {
///     // SAFETY: this is the only thread of the child, and it uses no reference that another thread has lent it.
///     unsafe { rcu::reset_after_fork() };
/// }
/// ```
#[cfg(target_os = "linux")]
pub unsafe fn reset_after_fork() {
    if let Some(domain) = DEFAULT.get() {
        // SAFETY: the caller is the only thread of the process, and uses no reference that another thread's reader lent.
        unsafe { domain.reset_after_fork() };
    }
}

/// What a thread has in the default domain, from its first use to the end of the thread.
pub(super) struct Local {
    reader: Reader,
    /// The record whose slot the thread lends. The first object that it protects for nobody makes it.
    lender: OnceCell<Claim<Record>>,
    /// Takes what the thread retires. The thread's first write makes it.
    shelf: OnceCell<RefCell<OwnShelf>>,
    /// Number of rounds of the thread's destructors that have passed.
    rounds: Cell<u32>,
}

thread_local! {
    /// It came from `Box::into_raw`. The cell has no destructor, so it can be read until the thread has ended.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Runs after the destructors of thread-locals, which may hold guards.
static END: ThreadEnd = ThreadEnd::new(end);

/// The least number of rounds of destructors that a system runs at the end of a thread.
const ROUNDS: u32 = 4;

#[inline]
fn present() -> Option<&'static Local> {
    // SAFETY: it is null, or what `begin` made for this thread. `end` frees it when nothing refers to it any more. The returned
    // reference is used only briefly, or kept by a guard or a protected load, which `end` looks for.
    unsafe { LOCAL.get().as_ref() }
}

#[inline]
pub(super) fn local() -> &'static Local {
    present().unwrap_or_else(begin)
}

/// Registers the thread.
#[cold]
#[inline(never)]
fn begin() -> &'static Local {
    let reader = default_domain().reader();
    let local = Local { reader, lender: OnceCell::new(), shelf: OnceCell::new(), rounds: Cell::new(0) };
    let local = Box::new(local);
    // An allocator, or a signal handler, may have used the default domain meanwhile.
    if let Some(local) = present() {
        return local;
    }
    let local = Box::into_raw(local);
    // A signal handler finds either the complete `Local` or none: the fence keeps the compiler from moving the store up.
    compiler_fence(Ordering::SeqCst);
    // Comes before the next call, which may allocate.
    LOCAL.set(local);
    // If this call fails, the record stays claimed after the thread has ended. It holds nothing up, but each later grace period costs a heavy
    // fence, as beside a thread that sleeps.
    // SAFETY: `end` accepts the pointer that was made here.
    unsafe { END.call_with(local.cast()) };
    // SAFETY: it was made just now, and `end` frees it only at the end of the thread.
    unsafe { &*local }
}

/// Runs in a round of the thread's destructors, and in each later one as long as guards or protected loads are left, in at most
/// [`ROUNDS`] rounds. Destructors that run later may use the default domain once more, with a new reader.
///
/// # Safety
/// `local` is the pointer that `begin` made for this thread.
unsafe extern "C" fn end(local: *mut c_void) {
    let pointer = local.cast::<Local>();
    {
        // SAFETY: `begin` made it for this thread, and it is not freed yet.
        let local = unsafe { &*pointer };
        if local.reader.record().is_in_use() {
            // Destructors of a later round may release the record. If none does, the record stays, as after a forgotten guard.
            local.rounds.set(local.rounds.get() + 1);
            // SAFETY: `pointer` is the argument of this call, and it is not freed here.
            if local.rounds.get() < ROUNDS && unsafe { END.call_with(pointer.cast()) } {
                return;
            }
            LOCAL.set(ptr::null());
            // The thread loads nothing any more.
            local.reader.offline();
            local.give_up();
            return;
        }
    }
    LOCAL.set(ptr::null());
    // A signal handler finds either the complete `Local` or none, as in `begin`.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: it came from `Box::into_raw`; no guard and no protected load refers to it, and `present` does not find it any more.
    let local = unsafe { Box::from_raw(pointer) };
    local.give_up();
}

impl Local {
    #[inline]
    fn lend(&'static self) -> Option<(&'static Reader, Slot<'static>)> {
        let claim = self.lender.get().unwrap_or_else(|| self.begin_lending());
        // SAFETY: the default domain is never dropped.
        let slot = unsafe { claim.slot() }.unlent()?;
        Some((&self.reader, slot))
    }

    #[cold]
    fn begin_lending(&self) -> &Claim<Record> {
        let protocol = &default_domain().core().protocol;
        if let Err(claim) = self.lender.set(protocol.begin_lending()) {
            // The allocator was called, and has protected an object itself.
            protocol.end_lending(&claim);
        }
        self.lender.get().expect("it was set just now")
    }

    #[cold]
    fn begin_shelf(&self, core: &Core) -> &RefCell<OwnShelf> {
        if let Err(shelf) = self.shelf.set(RefCell::new(OwnShelf::new(core))) {
            // The allocator was called, and has retired an object itself.
            shelf.into_inner().end(core);
        }
        self.shelf.get().expect("it was set just now")
    }

    /// Ends what the thread has besides its reader.
    fn give_up(&self) {
        if let Some(claim) = self.lender.get() {
            default_domain().core().protocol.end_lending(claim);
        }
        if let Some(shelf) = self.shelf.get() {
            shelf.borrow_mut().end(default_domain().core());
        }
    }
}

/// The reader of the calling thread.
#[inline]
pub(crate) fn reader() -> &'static Reader {
    &local().reader
}

/// What the calling thread has, if this is true of the default domain.
#[inline]
fn local_if(is_it: impl FnOnce(&Core) -> bool) -> Option<&'static Local> {
    DEFAULT.get().is_some_and(|domain| is_it(domain.core())).then(local)
}

/// The reader of the calling thread, if `core` is the default domain.
#[inline]
pub(crate) fn reader_in(core: &Core) -> Option<&'static Reader> {
    local_if(|default| ptr::eq(default, core)).map(|local| &local.reader)
}

/// A slot for one object that the calling thread protects for nobody in particular, and the thread's reader, by whose fence the slot is
/// set. The caller sets it before it calls any other code. `None` if the thread has lent its slot already, or the domain is another one.
#[inline]
pub(super) fn lend(domain: &WeakDomain) -> Option<(&'static Reader, Slot<'static>)> {
    local_if(|default| domain.is(default)).and_then(Local::lend)
}

/// As [`lend`], for a data structure that has the domain.
#[inline]
pub(crate) fn lend_in(core: &Core) -> Option<Slot<'static>> {
    local_if(|default| ptr::eq(default, core)).and_then(Local::lend).map(|(_, slot)| slot)
}

/// Panics unless the domain is the default one.
#[inline]
#[track_caller]
pub(super) fn verify(domain: &WeakDomain) -> &'static Local {
    let local = local();
    if !domain.is(local.reader.core()) {
        reject(domain);
    }
    local
}

#[cold]
#[inline(never)]
#[track_caller]
fn reject(domain: &WeakDomain) -> ! {
    let default = default_domain().name();
    panic!(
        "an object of domain `{domain}` was used as one of the default domain, `{default}`; call a function that takes a reader or \
         a reclaimer, such as `protect` in place of `get`, and pass one of `{domain}`"
    )
}

/// Adds an object of the default domain to those that the thread has retired, and frees some of what is ready.
///
/// # Panics
/// With the panic of a destructor; the object has been taken in then.
pub(super) fn retire<T: Send + Sync + 'static>(local: &'static Local, retired: Retired<T>) {
    let core = default_domain().core();
    let shelf = local.shelf.get().unwrap_or_else(|| local.begin_shelf(core));
    match shelf.try_borrow_mut() {
        Ok(mut shelf) => shelf.put(core, retired.into_parts().into_garbage()),
        // Called by a destructor that runs in `put`.
        Err(_) => drop(retired),
    }
}
