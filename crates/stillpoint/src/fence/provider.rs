//! Heavy fences from outside the library.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::RefUnwindSafe;
use std::sync::atomic::AtomicU32;

use stillpoint_sys::marks::MARKS;

/// Issues the heavy fences of domains by means that this library does not have, to threads that are registered with it.
///
/// The crate `stillpoint-multicast` has one that fences by signals.
///
/// # Safety
/// Each call H of [`heavy`](FenceProvider::heavy) that returns `Ok` is a sequentially consistent fence of the calling thread,
/// even if no thread is bound. For each thread T that is [bound](FenceProvider::bind) at any time between the start and the
/// return of H, one of these holds:
/// - T executes a full memory barrier meanwhile, at some point in its instruction stream. The barrier comes after what the caller
///   did before H, and before what the caller does after H;
/// - T is unbound, or released at its end, and what T did before that happens before the return of H;
/// - T is bound after H has started, and what the caller did before H happens before what T does once it is bound.
///
/// A thread that ends without being unbound is *released*. The provider first calls [`end_light_fences`] on the thread, and then
/// sets the bits in each word that the thread is bound with, by an atomic or. Until then, its fences reach the thread. The
/// provider changes words in no other way, and does not access a word that was unbound.
///
/// In the child of a `fork`, the calling thread is bound as before, with the same words, and no other thread is.
///
/// No method unwinds.
///
/// The smallest provider binds no thread, so that each reader fences itself:
///
/// ```
/// use std::sync::atomic::{fence, AtomicU32, Ordering};
/// use stillpoint::fence::{FenceProvider, Mode, Provider};
/// use stillpoint::rcu::Domain;
///
/// struct Nobody;
///
/// // SAFETY: no thread is ever bound, and `heavy` is a sequentially consistent fence.
/// unsafe impl FenceProvider for Nobody {
///     fn name(&self) -> &'static str { "nobody" }
///     fn probe(&self) -> Result<(), i32> { Ok(()) }
///     fn heavy(&self) -> Result<(), i32> { Ok(fence(Ordering::SeqCst)) }
///     unsafe fn bind(&self, _word: &AtomicU32, _bits: u32) -> bool { false }
///     fn unbind(&self, _word: &AtomicU32) {}
///     fn explain(&self, errno: i32) -> String { format!("error {errno}") }
/// }
///
/// let mode = Mode::Provided(Provider::new(&Nobody));
/// let domain = Domain::builder().fence(mode).build()?;
/// assert_eq!(domain.fence_mode(), mode);
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
pub unsafe trait FenceProvider: Send + Sync + RefUnwindSafe {
    /// The provider's name. Two providers with the same name count as the same provider.
    fn name(&self) -> &'static str;

    /// Whether this process may use the provider.
    ///
    /// # Errors
    /// The error number, as in `errno.h`.
    fn probe(&self) -> Result<(), i32>;

    /// Issues a full barrier on every bound thread.
    ///
    /// # Errors
    /// The error number, as in `errno.h`; not 0. Then nothing is ordered.
    fn heavy(&self) -> Result<(), i32>;

    /// Registers the calling thread until [`unbind`](FenceProvider::unbind) is called with the same word. A thread may be
    /// bound with several words, each of them once at a time. False if the thread cannot be registered, or was released: then the
    /// word is not kept, and the thread fences itself.
    ///
    /// # Safety
    /// The word is alive until the thread is unbound, or for ever.
    unsafe fn bind(&self, word: &AtomicU32, bits: u32) -> bool;

    /// Reverts the [`bind`](FenceProvider::bind) of the calling thread with this word, which is identified by its address. Does
    /// nothing for any other word: one that was refused, or whose thread was released.
    fn unbind(&self, word: &AtomicU32);

    /// Explains an error number that [`probe`](FenceProvider::probe) or [`heavy`](FenceProvider::heavy) has returned, and says what
    /// can be done about it.
    fn explain(&self, errno: i32) -> String;
}

/// A provider of fences: see [`FenceProvider`]. Two are equal if their names are.
#[derive(Clone, Copy)]
pub struct Provider(&'static dyn FenceProvider);

impl Provider {
    /// Wraps a provider.
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
    /// As for [`FenceProvider::bind`].
    #[cfg_attr(stillpoint_loom, expect(dead_code, reason = "the words of a model are loom's"))]
    pub(super) unsafe fn bind(self, word: &AtomicU32, bits: u32) -> bool {
        // SAFETY: the word is alive until the thread is unbound, or for ever, by the caller's promise.
        unsafe { self.0.bind(word, bits) }
    }

    #[cfg_attr(stillpoint_loom, expect(dead_code, reason = "the words of a model are loom's"))]
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

/// Declares that the calling thread ends, and that no provider reaches it from now on: its readers fence themselves. Only a
/// provider calls this.
///
/// ```
/// use stillpoint::fence;
///
/// std::thread::spawn(|| {
///     fence::end_light_fences(); // a provider does this in the destructor of a thread-local
///     assert!(fence::light_fences_have_ended());
/// }).join().unwrap();
/// assert!(!fence::light_fences_have_ended()); // other threads are not affected
/// ```
pub fn end_light_fences() {
    MARKS.with(|marks| marks.has_ended.set(true));
}

/// Whether no provider reaches this thread any more: see [`end_light_fences`].
#[inline(always)]
pub fn light_fences_have_ended() -> bool {
    MARKS.with(|marks| marks.has_ended.get())
}
