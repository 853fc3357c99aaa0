use super::engine::Core;
use super::reader::Reader;
use super::reclaimer::Reclaimer;

/// A region in which plain references to shared objects may be held: a [`Guard`](super::Guard), or a
/// [`QsbrReader`](super::QsbrReader) between two quiescent states.
///
/// Sealed: only types of this crate can vouch for it.
///
/// ```compile_fail,E0277
/// struct Mine;
/// impl stillpoint::rcu::Region for Mine {} // `Mine: Sealed` is not satisfied
/// ```
pub trait Region: sealed::Sealed {}

impl<R: Region + ?Sized> Region for &R {}
/// What belongs to a domain, and can be asked which: a [`Reader`], a [`Region`], a [`Reclaimer`]. See
/// [`Domain::verify`](super::Domain::verify).
pub trait Member: sealed::Member {}

impl<R: Region> Member for R {}
impl Member for Reader {}
impl Member for Reclaimer {}

pub(crate) mod sealed {
    use super::{Core, Reader, Reclaimer, Region};

    pub trait Member {
        fn core(&self) -> &Core;
    }

    impl<R: Region> Member for R {
        #[inline(always)]
        fn core(&self) -> &Core {
            Sealed::core(self)
        }
    }

    impl Member for Reader {
        #[inline(always)]
        fn core(&self) -> &Core {
            Reader::core(self)
        }
    }

    impl Member for Reclaimer {
        #[inline(always)]
        fn core(&self) -> &Core {
            Reclaimer::core(self)
        }
    }

    /// # Safety
    /// As long as the value is borrowed, its record in `core` publishes a token that was current before any
    /// load made through the borrow.
    pub unsafe trait Sealed {
        fn core(&self) -> &Core;
    }

    // SAFETY: a borrow of what the promise holds for, as long as that is borrowed.
    unsafe impl<R: Sealed + ?Sized> Sealed for &R {
        #[inline(always)]
        fn core(&self) -> &Core {
            (**self).core()
        }
    }
}
