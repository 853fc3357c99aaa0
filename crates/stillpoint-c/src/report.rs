//! Reports of calls that cannot return an error, to the program's hook. Reports are never printed.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use stillpoint_sys::tsan;

use crate::border::{call, Answer, Uncancelled};
use crate::own::own;
use crate::reason::{say, LastReason, Reason, Text};

pub type still_report_fn = Option<unsafe extern "C-unwind" fn(report: *const c_char, context: *mut c_void)>;

struct Hook {
    function: still_report_fn,
    context: *mut c_void,
    /// The previous hook. It is kept here so that leak checkers find it.
    _before: *mut Hook,
}

/// Null, or a hook from a box. Hooks are never freed: another thread may be about to call one.
static HOOK: AtomicPtr<Hook> = AtomicPtr::new(ptr::null_mut());

/// Calls the hook with a text.
#[cold]
fn tell(text: &Text) {
    // Acquire: pairs with the release in `still_on_report`. SAFETY: the address is null, or that of a hook, which is never freed.
    let Some(hook) = (unsafe { HOOK.load(Ordering::Acquire).as_ref() }) else { return };
    let Some(function) = hook.function else { return };
    // A report from within the hook does not call the hook again, since that could recur without end.
    let own = own();
    if own.is_telling.replace(true) {
        return;
    }
    // The hook may reach cancellation points, and some of the callers have no `Uncancelled`.
    let _whole = Uncancelled::new();
    let _heeded = tsan::heed();
    // SAFETY: the caller of `still_on_report` promises that the function may be called with a report and this context.
    unsafe { function(text.start(), hook.context) };
    own.is_telling.set(false);
}

/// Reports what holds up a call that keeps waiting.
pub(crate) fn report(text: fmt::Arguments<'_>) {
    say(Reason::written(
        text,
        c"there was no memory for the text of a report, which the hook of still_on_report gets",
    ));
    tell(&Text::of(text));
}

/// Functions that return nothing report their failures.
impl Answer for () {
    fn failed(_: c_int) {
        // A copy, because the hook may call functions that fail and change the reason.
        tell(&Text::of(LastReason));
    }
}

#[no_mangle]
pub extern "C" fn still_on_report(function: still_report_fn, context: *mut c_void) {
    call(|| {
        let hook = Box::into_raw(Box::new(Hook { function, context, _before: ptr::null_mut() }));
        // Release: pairs with the acquire in `tell`. Relaxed: the previous hook is not read.
        let publish = |before| {
            // SAFETY: `hook` is not published yet, so no other thread uses it.
            unsafe { (*hook)._before = before };
            Some(hook)
        };
        let _ = HOOK.fetch_update(Ordering::Release, Ordering::Relaxed, publish);
        Ok(())
    });
}
