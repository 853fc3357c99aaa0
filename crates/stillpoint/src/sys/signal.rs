//! `int sigaction(int signum, const struct sigaction *act, struct sigaction *oldact)`, `int pthread_sigmask(int how, const
//! sigset_t *set, sigset_t *oldset)`, `int tgkill(pid_t tgid, pid_t tid, int sig)`, and `/proc/self/task/TID/status`.

use std::io;
use std::mem::MaybeUninit;

/// What is done when a signal comes.
pub(crate) type Handler = extern "C" fn(libc::c_int);

/// Whether somebody else handles the signal, so that it must not be taken.
pub(crate) fn is_taken(signal: i32) -> io::Result<bool> {
    let action = action(signal)?.sa_sigaction;
    Ok(action != libc::SIG_DFL && action != libc::SIG_IGN)
}

/// Whether this function handles the signal.
pub(crate) fn is_handled_by(signal: i32, handler: Handler) -> bool {
    action(signal).is_ok_and(|action| action.sa_sigaction == handler as usize)
}

/// Lets the function handle the signal, with every other signal blocked. Interrupted system calls are started again
/// where the kernel does that.
pub(crate) fn handle(signal: i32, handler: Handler) -> io::Result<()> {
    // SAFETY: all zeros are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the set is writable, and the action is what the call asks for.
    let answer = unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Restores the default, unless somebody else has come to handle the signal.
pub(crate) fn give_back(signal: i32, handler: Handler) {
    if is_handled_by(signal, handler) {
        // SAFETY: no function is passed. A default that can be replaced can be restored.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn action(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: the call writes the action, or fails.
    match unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } {
        // SAFETY: written.
        0 => Ok(unsafe { action.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread's signal mask before it blocked a signal, which is restored when this is dropped.
pub(crate) struct Blocked(libc::sigset_t);

/// Blocks the signal for the calling thread.
pub(crate) fn block(signal: i32) -> Blocked {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the sets are writable, the signal is valid, and the call fails for bad arguments alone.
    unsafe {
        let set = only(signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr());
        Blocked(before.assume_init())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask came from `pthread_sigmask`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Whether the calling thread blocks the signal.
pub(crate) fn is_blocked(signal: i32) -> bool {
    let mut now = MaybeUninit::uninit();
    // SAFETY: the call writes the mask, and changes nothing.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
        libc::sigismember(now.as_ptr(), signal) == 1
    }
}

/// # Safety
/// The signal is valid.
unsafe fn only(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// Sends the signal to a thread of this process. That there is no such thread is no error. Async-signal-safe.
///
/// # Errors
/// The error number.
pub(crate) fn send(tid: u32, signal: i32) -> Result<(), i32> {
    // SAFETY: no pointers are passed.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) } == 0 {
        return Ok(());
    }
    // EINVAL: the id is 0.
    match io::Error::last_os_error().raw_os_error() {
        None | Some(libc::ESRCH | libc::EINVAL) => Ok(()),
        Some(errno) => Err(errno),
    }
}

/// Whether there is no such thread in this process.
pub(crate) fn is_gone(tid: u32) -> bool {
    // SAFETY: no pointers are passed, and nothing is sent.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether the system call that sends is allowed.
pub(crate) fn may_send() -> io::Result<()> {
    // SAFETY: no pointers are passed, and nothing is sent.
    match unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), crate::sys::thread_id(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a thread of this process blocks the signal; `None` if that cannot be found out.
pub(crate) fn blocks(tid: u32, signal: i32) -> Option<bool> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_seen_by_the_thread_and_by_others() {
        let tid = crate::sys::thread_id();
        assert!(!is_blocked(libc::SIGWINCH));
        assert_ne!(blocks(tid, libc::SIGWINCH), Some(true));
        {
            let _blocked = block(libc::SIGWINCH);
            assert!(is_blocked(libc::SIGWINCH));
            assert_ne!(blocks(tid, libc::SIGWINCH), Some(false));
            assert_ne!(blocks(tid, libc::SIGWINCH - 1), Some(true));
        }
        assert!(!is_blocked(libc::SIGWINCH));
    }

    #[test]
    fn a_signal_that_nobody_handles_is_not_taken() {
        extern "C" fn nothing(_: libc::c_int) {}
        assert!(!is_taken(libc::SIGWINCH).unwrap() && !is_handled_by(libc::SIGWINCH, nothing));
        assert!(is_taken(libc::SIGSEGV).unwrap(), "the standard library handles it");
        assert!(is_taken(0).is_err() && handle(libc::SIGKILL, nothing).is_err());
    }
}
