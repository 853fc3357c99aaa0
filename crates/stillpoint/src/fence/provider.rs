//! Heavy fences from outside the library.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::RefUnwindSafe;
use std::sync::atomic::AtomicU32;

/// Issues the heavy fences of domains by means that this library does not have, on threads that are registered with it.
///
/// The crate `stillpoint-multicast` has one that fences by signals.
///
/// # Safety
/// Each call H of [`heavy`](FenceProvider::heavy) that returns `Ok` is a sequentially consistent fence of the calling thread,
/// also when nobody is bound. For each thread T that is [bound](FenceProvider::bind) at any time between its start and its
/// return, one of these holds:
/// - T executes a full memory barrier meanwhile, at some point in its instruction stream, which comes after what the caller
///   did before H, and before what the caller does after H;
/// - T is unbound, or let go at its end, and what T did before that happens before the return of H;
/// - T is bound after H has started, and what the caller did before H happens before what T does once it is bound.
///
/// A thread that ends without being unbound is *let go*: first [`end_light_fences`] is called on it, then the bits are set in
/// each word that it is bound with, by an atomic or, and only then it is no longer reached. Words are changed in no other
/// way, and not touched after they were unbound.
///
/// In the child of a `fork`, the calling thread is bound as before, with the same words, and no other thread is.
///
/// No method unwinds.
pub unsafe trait FenceProvider: Send + Sync + RefUnwindSafe {
    /// A name for people. Two providers of one name are taken for the same by [`choose`](super::choose).
    fn name(&self) -> &'static str;

    /// Whether this process may use it.
    ///
    /// # Errors
    /// The error number, as in `errno.h`.
    fn probe(&self) -> Result<(), i32>;

    /// A full barrier on every bound thread.
    ///
    /// # Errors
    /// The error number, as in `errno.h`; not 0. Nothing is ordered then.
    fn heavy(&self) -> Result<(), i32>;

    /// Registers the calling thread until [`unbind`](FenceProvider::unbind) is called with the same word. A thread may be
    /// bound with several words, each of them once at a time. False if it cannot be registered, or was let go: the word is
    /// not kept then, and the thread fences itself.
    ///
    /// # Safety
    /// The word is alive until the thread is unbound, or for ever.
    unsafe fn bind(&self, word: &AtomicU32, bits: u32) -> bool;

    /// Takes the [`bind`](FenceProvider::bind) of the calling thread with this word back, which is told by its address. Does
    /// nothing for any other word: one that was refused, or when the thread was let go.
    fn unbind(&self, word: &AtomicU32);

    /// What such an error means, and what can be done about it.
    fn explain(&self, errno: i32) -> String;
}

/// A [`FenceProvider`]. Two are equal if their names are.
#[derive(Clone, Copy)]
pub struct Provider(&'static dyn FenceProvider);

impl Provider {
    /// Wraps it.
    pub const fn new(provider: &'static dyn FenceProvider) -> Self {
        Self(provider)
    }

    pub(super) fn probe(self) -> Result<(), i32> {
        self.0.probe()
    }

    pub(super) fn heavy(self) -> Result<(), i32> {
        self.0.heavy()
    }

    pub(super) fn explain(self, errno: i32) -> String {
        self.0.explain(errno)
    }

    /// # Safety
    /// As of [`FenceProvider::bind`].
    #[cfg_attr(loom, expect(dead_code, reason = "the words of a model are loom's"))]
    pub(super) unsafe fn bind(self, word: &AtomicU32, bits: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.bind(word, bits) }
    }

    #[cfg_attr(loom, expect(dead_code, reason = "the words of a model are loom's"))]
    pub(super) fn unbind(self, word: &AtomicU32) {
        self.0.unbind(word);
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Provider {}

impl Hash for Provider {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.0.name()).finish()
    }
}

std::thread_local! {
    /// Without a destructor: it can be looked at to the end of the thread.
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread ends, and no provider reaches it from here on: its readers fence themselves. For providers.
pub fn end_light_fences() {
    HAS_ENDED.set(true);
}

/// Whether [`end_light_fences`] was called on this thread.
#[inline(always)]
pub fn light_fences_have_ended() -> bool {
    HAS_ENDED.get()
}
