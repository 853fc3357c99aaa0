//! Panics of the user's functions, which are kept until the work that was begun is done.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// The payload of a panic.
pub type Panic = Box<dyn std::any::Any + Send>;

/// Calls `function`. Returns its result, or its panic as an error. The caller is responsible for what `function` leaves half
/// done.
pub fn catch<R>(function: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(function))
}

/// Calls `function`. Returns its result, or `None` after a panic, which is [kept](keep_first).
pub fn keeping<R>(first: &mut Option<Panic>, function: impl FnOnce() -> R) -> Option<R> {
    catch(function).map_err(|panic| keep_first(first, panic)).ok()
}

/// Keeps the first of several panics, and discards later ones.
pub fn keep_first(first: &mut Option<Panic>, panic: Panic) {
    if first.is_none() {
        *first = Some(panic);
    } else {
        discard(panic);
    }
}

/// Drops the payload of a panic. Its destructor may panic as well: the payload of that panic is leaked.
pub fn discard(panic: Panic) {
    catch_unwind(AssertUnwindSafe(|| drop(panic))).unwrap_or_else(std::mem::forget);
}

/// Resumes a panic, unless the thread is unwinding already: a second panic would abort.
pub fn resume(panic: Option<Panic>) {
    match panic {
        Some(panic) if std::thread::panicking() => discard(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}
