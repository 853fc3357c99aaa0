//! The default collector, and what each thread has in it.

use std::cell::{Cell, OnceCell};
use std::ptr::{self, NonNull};

use stillpoint::rcu::{BuildError, DomainBuilder};
use stillpoint_sys::panics;
use stillpoint_sys::sync::Lasting;

use crate::collector::{builder, Collector};
use crate::guard::Guard;
use crate::handle::LocalHandle;
use crate::local::Local;
use crate::rounds::Shared;

static DEFAULT: Lasting<Collector> = Lasting::new();

thread_local! {
    /// The thread's local, as long as [`OWNER`] has its handle; otherwise null. It has no destructor, so that an access
    /// costs one load.
    static LOCAL: Cell<*mut Local> = const { Cell::new(ptr::null_mut()) };
    static OWNER: OnceCell<Owner> = const { OnceCell::new() };
}

struct Owner {
    handle: Option<LocalHandle>,
}

impl Owner {
    fn new(handle: LocalHandle) -> Self {
        LOCAL.set(handle.address().as_ptr());
        Self { handle: Some(handle) }
    }
}

/// Clears `LOCAL` before the handle is dropped. What that hands on may call a hook, whose panic would end the process here.
impl Drop for Owner {
    fn drop(&mut self) {
        LOCAL.set(ptr::null_mut());
        panics::catch(|| drop(self.handle.take())).unwrap_or_else(panics::discard);
    }
}

/// The local of this thread, whose handle `OWNER` has. It is alive until code of the user runs, which may end it.
#[inline]
fn present() -> Option<NonNull<Local>> {
    NonNull::new(LOCAL.get())
}

/// Pins the calling thread in the [default collector](default_collector). See [`Guard`].
///
/// The outermost guard of a thread costs a sequentially consistent fence, and little more. A nested guard costs a few
/// instructions. The first call registers the thread. In destructors of thread-locals that run late, each call
/// registers the thread anew.
///
/// ```
/// use stillpoint_epoch as epoch;
///
/// let guard = epoch::pin();
/// assert!(epoch::is_pinned());
/// ```
#[inline]
pub fn pin() -> Guard {
    match present() {
        Some(local) => {
            // SAFETY: the local is alive, since no code of the user has run since `present`.
            unsafe { local.as_ref() }.pin();
            // SAFETY: the guard was counted just now.
            unsafe { Guard::of(local) }
        }
        None => pin_first(),
    }
}

#[cold]
#[inline(never)]
fn pin_first() -> Guard {
    let handle = default_collector().register();
    // The registration may have called wakers, one of which may have pinned this thread.
    if present().is_some() {
        return pin();
    }
    let guard = handle.pin();
    // In destructors of thread-locals that run late, `OWNER` is gone, and only the guard keeps the local alive.
    let _ = OWNER.try_with(|owner| {
        owner.get_or_init(|| Owner::new(handle));
    });
    guard
}

/// Whether the calling thread is pinned in the [default collector](default_collector). Registers nothing. In
/// destructors of thread-locals that run late, returns false even if the thread has a guard.
///
/// ```
/// assert!(!stillpoint_epoch::is_pinned());
/// ```
#[inline]
pub fn is_pinned() -> bool {
    // SAFETY: the local is alive, since no code of the user has run since `present`.
    present().is_some_and(|local| unsafe { local.as_ref() }.is_pinned())
}

/// The collector of the whole process, which [`pin`] uses. Its first use makes it, and it is never dropped.
///
/// ```
/// use stillpoint_epoch as epoch;
///
/// let handle = epoch::default_collector().register();
/// assert!(handle.pin().collector() == epoch::pin().collector());
/// ```
pub fn default_collector() -> &'static Collector {
    DEFAULT.get_or_make(|| {
        let builder = builder().name("crossbeam-epoch");
        Collector::of(Shared::new(builder.build().expect("nothing was chosen that may be refused")))
    })
}

/// Makes the default collector over a domain of the caller's choice.
pub(crate) fn build(builder: DomainBuilder) -> Result<&'static Collector, BuildError> {
    if DEFAULT.get().is_some() {
        return Err(BuildError::DefaultInUse);
    }
    let collector = Collector::of(Shared::new(builder.build()?));
    DEFAULT.set(collector).map_err(|_| BuildError::DefaultInUse)
}
