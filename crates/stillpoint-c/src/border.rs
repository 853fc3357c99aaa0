//! The frame of every exported function: no panic unwinds across it, no thread is cancelled within it, and errors become numbers.

use std::ffi::{c_char, c_int, CStr};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::raw::Refused;
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::BuildError;
pub(crate) use stillpoint_sys::linux::Uncancelled;
use stillpoint_sys::tsan;

use crate::reason::{say, Reason, Word};

/// Why a call fails: an errno, and the reason in words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) errno: c_int,
    pub(crate) reason: Reason,
}

impl Refusal {
    pub(crate) const fn new(errno: c_int, text: &'static CStr) -> Self {
        Self { errno, reason: Reason::fixed(text) }
    }

    pub(crate) const fn invalid(text: &'static CStr) -> Self {
        Self::new(libc::EINVAL, text)
    }

    pub(crate) const fn no_memory(text: &'static CStr) -> Self {
        Self::new(libc::ENOMEM, text)
    }

    /// Sets what stands for the next `{}` of the text. There are at most two.
    pub(crate) fn with(self, word: impl Into<Word>) -> Self {
        Self { reason: self.reason.with(word), ..self }
    }

    /// A refusal with a text that has more in it than two words: see [`Reason::written`].
    pub(crate) fn told(errno: c_int, text: fmt::Arguments<'_>, otherwise: &'static CStr) -> Self {
        Self { errno, reason: Reason::written(text, otherwise) }
    }
}

impl From<SynchronizeError> for Refusal {
    fn from(error: SynchronizeError) -> Self {
        let (errno, otherwise) = match &error {
            SynchronizeError::Stalled(_) => (libc::ETIMEDOUT, c"the grace period is blocked by a reader"),
            SynchronizeError::Pinned { .. } => {
                (libc::ETIMEDOUT, c"retired objects are held by protected loads: release them, or wait longer")
            }
            SynchronizeError::Busy { .. } => {
                (libc::ETIMEDOUT, c"other threads have not yet freed what was left to the domain: wait longer")
            }
            // Not the errno of the fence, which may be that of another refusal. As for a domain that cannot have its mode.
            SynchronizeError::Fence(_) => {
                (libc::EOPNOTSUPP, c"no grace period can complete: the kernel refused a fence")
            }
            // All other errors are waits for the calling thread itself.
            _ => (
                libc::EDEADLK,
                c"this thread would wait for itself: leave the region, release what it protects, or call this from elsewhere",
            ),
        };
        Self::told(errno, format_args!("{error}"), otherwise)
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        let (errno, otherwise) = match &error {
            BuildError::Asymmetric(_) => (libc::EOPNOTSUPP, c"the fence mode is unavailable"),
            BuildError::Boost { .. } => (libc::EPERM, c"this process may not boost readers in this way"),
            _ => (libc::EINVAL, c"the domain could not be built"),
        };
        Self::told(errno, format_args!("{error}"), otherwise)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let (errno, text) = match refused.kind {
            RetireErrorKind::Full => {
                (libc::ENOSPC, c"the reclaimer is full of objects that readers keep alive: retire it later")
            }
            RetireErrorKind::DomainFull => {
                (libc::EDQUOT, c"the domain is full of objects that wait to be freed: retire it later")
            }
            RetireErrorKind::TooLarge => (
                libc::EMSGSIZE,
                c"the object has more bytes than may wait in the reclaimer or in its domain: set a higher `max_pending_bytes`, or \
                  free it after a grace period",
            ),
            RetireErrorKind::Closed => {
                (libc::EPIPE, c"the background reclaimer is gone: retire the object to another one")
            }
            RetireErrorKind::WouldDeadlock => (
                libc::EDEADLK,
                c"the reclaimer is full of objects that this thread itself holds, so it would wait for itself",
            ),
            _ => (libc::EXDEV, c"the object belongs to another domain"),
        };
        Self::new(errno, text)
    }
}

/// A time from C: `None` for `STILL_FOREVER`.
pub(crate) fn time(nanoseconds: i64) -> Result<Option<Duration>, Refusal> {
    match u64::try_from(nanoseconds) {
        Ok(time) => Ok(Some(Duration::from_nanos(time))),
        Err(_) if nanoseconds == -1 => Ok(None),
        Err(_) => {
            let text = c"a time of {} ns is negative: pass 0 or more, or STILL_FOREVER";
            Err(Refusal::invalid(text).with(nanoseconds))
        }
    }
}

/// A time for C, at most `i64::MAX`.
pub(crate) fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// What an exported function returns when it fails.
pub(crate) trait Answer {
    fn failed(errno: c_int) -> Self;
}

impl Answer for c_int {
    fn failed(errno: c_int) -> Self {
        -errno
    }
}

impl Answer for isize {
    fn failed(errno: c_int) -> Self {
        -(errno as isize)
    }
}

/// Returns 0, and sets `errno`.
impl Answer for u64 {
    fn failed(errno: c_int) -> Self {
        set_errno(errno);
        0
    }
}

/// Returns NULL, and sets `errno`.
impl<T> Answer for *mut T {
    fn failed(errno: c_int) -> Self {
        set_errno(errno);
        std::ptr::null_mut()
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address belongs to the calling thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Runs the body of an exported function.
#[inline]
pub(crate) fn call<A: Answer>(body: impl FnOnce() -> Result<A, Refusal>) -> A {
    let _whole = Uncancelled::new();
    briefly(body)
}

/// As [`call`], for a body that reaches no cancellation point of libc.
#[inline]
pub(crate) fn briefly<A: Answer>(body: impl FnOnce() -> Result<A, Refusal>) -> A {
    let _ignored = tsan::ignore();
    // The refusal stays within: what passes through `catch_unwind` goes over the stack, and the answer is one word.
    caught(|| body().unwrap_or_else(|refusal| refuse(&refusal)))
}

/// As [`briefly`], for a body that cannot fail.
#[inline]
pub(crate) fn caught<A: Answer>(body: impl FnOnce() -> A) -> A {
    // Unwind safety: a panic is a defect of the library, and each part of the library keeps its own state consistent.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => answer,
        Err(_) => refuse(&DEFECT),
    }
}

/// The answer to a panic, whose message Rust has written to standard error.
const DEFECT: Refusal = Refusal::new(
    libc::ENOTRECOVERABLE,
    c"a defect of stillpoint, please report it: the message of a panic is on standard error",
);

/// Answers with a refusal. Functions that return nothing report it.
#[cold]
pub(crate) fn refuse<A: Answer>(refusal: &Refusal) -> A {
    say(refusal.reason);
    A::failed(refusal.errno)
}

#[no_mangle]
pub extern "C" fn still_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("the text has its only zero at the end"),
        };
    VERSION.as_ptr()
}
