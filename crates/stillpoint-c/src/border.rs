//! The frame of every exported function: no panic unwinds across it, no thread is cancelled within it, and errors become numbers.

use std::any::Any;
use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, CStr};
use std::fmt::{self, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use stillpoint::rcu::{BuildError, RetireErrorKind, SynchronizeError};
use stillpoint_sys::tsan;

/// Why a call fails: an errno, and the reason in words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: c_int,
    pub(crate) reason: Cow<'static, str>,
}

impl Refusal {
    pub(crate) fn new(errno: c_int, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, reason: reason.into() }
    }

    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EINVAL, reason)
    }
}

impl From<SynchronizeError> for Refusal {
    fn from(error: SynchronizeError) -> Self {
        let errno = match &error {
            SynchronizeError::Stalled(_)
            | SynchronizeError::Pinned { .. }
            | SynchronizeError::Busy { .. } => libc::ETIMEDOUT,
            SynchronizeError::Fence(fence) => fence.raw_os_error(),
            // All other errors are waits for the calling thread itself.
            _ => libc::EDEADLK,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        let errno = match &error {
            BuildError::Asymmetric(_) => libc::EOPNOTSUPP,
            BuildError::Boost { .. } => libc::EPERM,
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<stillpoint::rcu::raw::Refused> for Refusal {
    fn from(refused: stillpoint::rcu::raw::Refused) -> Self {
        let errno = match refused.kind {
            RetireErrorKind::Full => libc::ENOSPC,
            RetireErrorKind::DomainFull => libc::EDQUOT,
            RetireErrorKind::TooLarge => libc::EMSGSIZE,
            RetireErrorKind::Closed => libc::EPIPE,
            RetireErrorKind::WouldDeadlock => libc::EDEADLK,
            _ => libc::EXDEV,
        };
        Self::new(errno, refused.to_string())
    }
}

/// A time from C: `None` for `STILL_FOREVER`.
pub(crate) fn time(nanoseconds: i64) -> Result<Option<Duration>, Refusal> {
    match u64::try_from(nanoseconds) {
        Ok(time) => Ok(Some(Duration::from_nanos(time))),
        Err(_) if nanoseconds == -1 => Ok(None),
        Err(_) => Err(Refusal::invalid(format!(
            "a time of {nanoseconds} ns is negative: pass 0 or more, or STILL_FOREVER"
        ))),
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
    // Unwind safety: a panic is a defect of the library, and each part of the library keeps its own state consistent.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(refusal)) => refuse(&refusal),
        Err(panic) => refuse(&Refusal::new(libc::ENOTRECOVERABLE, message(&*panic))),
    }
}

/// As [`briefly`], for a body that cannot fail.
#[inline]
pub(crate) fn caught<A: Answer>(body: impl FnOnce() -> A) -> A {
    // Unwind safety: as in `briefly`.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => answer,
        Err(panic) => refuse(&Refusal::new(libc::ENOTRECOVERABLE, message(&*panic))),
    }
}

#[cold]
fn refuse<A: Answer>(refusal: &Refusal) -> A {
    say(&refusal.reason);
    A::failed(refusal.errno)
}

/// Sets the text that [`still_error`] returns on the calling thread.
pub(crate) fn say(text: &str) {
    REASON.with(|reason| reason.set(text));
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect of stillpoint, please report it: {}", text.unwrap_or("a panic without a message"))
}

/// While this value lives, the calling thread is not cancelled. A cancellation within libc would unwind through Rust frames.
pub(crate) struct Uncancelled {
    before: c_int,
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    const DISABLE: c_int = 1;

    #[inline]
    pub(crate) fn new() -> Self {
        let mut before = 0;
        // SAFETY: the state is valid, and `before` is a place for the previous one.
        unsafe { pthread_setcancelstate(Self::DISABLE, &mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the previous state is valid. Enabling does not act on a pending cancellation, unless it is asynchronous.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// The reason of a thread's last failure. It has no destructor, so it is valid until the thread's end.
struct Reason(UnsafeCell<[u8; 512]>);

impl Reason {
    fn set(&self, reason: &str) {
        /// Writes as much as fits, and ends it with a zero.
        struct Rest<'r>(&'r mut [u8]);

        impl Write for Rest<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let room = self.0.len() - 1;
                let mut end = text.len().min(room);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let rest = std::mem::take(&mut self.0);
                rest[..end].copy_from_slice(&text.as_bytes()[..end]);
                rest[end] = 0;
                self.0 = &mut rest[end..];
                Ok(())
            }
        }

        // SAFETY: the text belongs to this thread, and there is no other reference to it: C code reads it only between calls.
        let place = unsafe { &mut *self.0.get() };
        let _ = Rest(place).write_str(reason);
    }
}

thread_local! {
    static REASON: Reason = const { Reason(UnsafeCell::new([0; 512])) };
}

#[no_mangle]
pub extern "C" fn still_error() -> *const c_char {
    REASON.with(|reason| reason.0.get().cast_const().cast())
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
