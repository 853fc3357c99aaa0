use super::domain::Domain;
use super::engine::Core;

/// A region in which plain references to shared objects may be held: a [`Guard`](super::Guard), or a
/// [`QsbrReader`](super::QsbrReader) between two quiescent states.
///
/// Sealed: only types of this crate can vouch for it.
///
/// ```compile_fail,E0277
/// struct Mine;
/// impl stillpoint::rcu::Region for Mine {} // `Mine: Sealed` is not satisfied
/// ```
pub trait Region: sealed::Sealed {
    /// As [`Reader::verify`](super::Reader::verify).
    ///
    /// # Panics
    /// If the region is not of `domain`; the message names both.
    #[inline(always)]
    #[track_caller]
    fn verify(&self, domain: &Domain) {
        domain.verify(self.core());
    }
}

impl<R: Region + ?Sized> Region for &R {}
pub(crate) mod sealed {
    use super::Core;

    /// # Safety
    /// As long as the value is borrowed, its record in `core` publishes a token that was current before any
    /// load made through the borrow.
    pub unsafe trait Sealed {
        fn core(&self) -> &Core;
    }

    // SAFETY: this borrows a value that keeps the promise, and lives no longer than that borrow.
    unsafe impl<R: Sealed + ?Sized> Sealed for &R {
        #[inline(always)]
        fn core(&self) -> &Core {
            (**self).core()
        }
    }
}
