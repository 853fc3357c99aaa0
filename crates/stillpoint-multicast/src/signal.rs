//! `int sigaction(int signum, const struct sigaction *act, struct sigaction *oldact)`, `int pthread_sigmask(int how, const
//! sigset_t *set, sigset_t *oldset)`, `int tgkill(pid_t tgid, pid_t tid, int sig)`, and `/proc/self/task/TID/{status,stat}`.

use std::io;
use std::mem::MaybeUninit;

/// The function that handles a signal.
pub(super) type Handler = extern "C" fn(libc::c_int);

/// Whether a function other than `handler` handles the signal, so that it must not be taken. Reads the action only once:
/// `handler` may be installed and removed meanwhile.
pub(super) fn is_taken(signal: i32, handler: Handler) -> io::Result<bool> {
    Ok(is_foreign(&action(signal)?, handler))
}

/// Whether the action is a function other than `handler`.
pub(super) fn is_foreign(action: &libc::sigaction, handler: Handler) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN, handler as usize].contains(&action.sa_sigaction)
}

/// Whether this function handles the signal.
pub(super) fn is_handled_by(signal: i32, handler: Handler) -> bool {
    action(signal).is_ok_and(|action| action.sa_sigaction == handler as usize)
}

/// Installs the function for the signal, with every other signal blocked, also those by which C libraries cancel threads: `sigfillset` leaves
/// these out. Interrupted system calls restart where the kernel supports that. Returns the previous action.
pub(super) fn handle(signal: i32, handler: Handler) -> io::Result<libc::sigaction> {
    // SAFETY: all zeros are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART;
    let mut before = MaybeUninit::uninit();
    // SAFETY: the set is writable, and plain bits. The call reads the action, and either writes the previous one or fails.
    unsafe {
        (&raw mut action.sa_mask).write_bytes(0xff, 1);
        match libc::sigaction(signal, &raw const action, before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Restores the previous action from [`handle`], unless another function handles the signal by now. Does nothing if the
/// previous action is `handler` itself: the caller that found another action there restores that one.
pub(super) fn give_back(signal: i32, handler: Handler, before: &libc::sigaction) {
    if before.sa_sigaction != handler as usize && is_handled_by(signal, handler) {
        // SAFETY: the kernel returned this action itself. An action that could be replaced can be restored.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}

fn action(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: the call writes the action, or fails.
    match unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } {
        // SAFETY: the call has written it.
        0 => Ok(unsafe { action.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread's signal mask before it blocked a signal, which is restored when this is dropped.
pub(super) struct Blocked(libc::sigset_t);

/// Blocks the signal for the calling thread.
pub(super) fn block(signal: i32) -> Blocked {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the sets are writable and the signal is valid; the call fails only for bad arguments.
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
pub(super) fn is_blocked(signal: i32) -> bool {
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

/// Sends the signal to a thread of this process. It is not an error if the thread does not exist. Async-signal-safe.
///
/// # Errors
/// The error number.
pub(super) fn send(tid: u32, signal: i32) -> Result<(), i32> {
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

/// Whether this process has no such thread.
pub(super) fn is_gone(tid: u32) -> bool {
    // SAFETY: no pointers are passed, and nothing is sent.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether this process may use the system call that sends signals.
pub(super) fn may_send() -> io::Result<()> {
    // SAFETY: no pointers are passed, and nothing is sent.
    match unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), stillpoint_sys::linux::thread_id(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The state of a thread of this process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    /// Whether the thread blocked the signal. Not so while it waits for the signal (`sigwait`): then the kernel lets the signal wake it.
    pub(super) blocks: bool,
    /// Whether the signal was sent to the thread, and neither handled nor taken away.
    pub(super) is_pending: bool,
    /// Whether the thread slept, so that it would not have used a processor.
    pub(super) sleeps: bool,
    /// Whether the thread had ended. An ended main thread stays, and can be sent signals, as long as the process has others.
    pub(super) has_ended: bool,
    /// The processor time that the thread has used, in hundredths of a second.
    pub(super) ticks: u64,
}

impl Sight {
    /// Inspects a thread; `None` if `/proc` has no information.
    pub(super) fn of(tid: u32, signal: i32) -> Option<Self> {
        let read = |name| std::fs::read(format!("/proc/self/task/{tid}/{name}")).ok();
        // Names of threads may be invalid UTF-8.
        let (status, stat) = (read("status")?, read("stat")?);
        Self::parse(&String::from_utf8_lossy(&status), &String::from_utf8_lossy(&stat), signal)
    }

    fn parse(status: &str, stat: &str, signal: i32) -> Option<Self> {
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_in = |set| Some(u64::from_str_radix(field(set)?, 16).ok()? >> (signal - 1) & 1 == 1);
        // Behind the name, which may contain anything, come the state, ten other fields, and the times in user code and in the
        // kernel.
        let mut times =
            stat.rsplit_once(") ")?.1.split(' ').skip(11).map_while(|time| time.parse::<u64>().ok());
        let state = field("State:")?;
        Some(Self {
            blocks: is_in("SigBlk:")?,
            is_pending: is_in("SigPnd:")?,
            sleeps: state.starts_with('S'),
            has_ended: state.starts_with(['Z', 'X']),
            ticks: times.next()? + times.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_seen_by_the_thread_and_by_others() {
        let tid = stillpoint_sys::linux::thread_id();
        assert!(!is_blocked(libc::SIGWINCH));
        let blocks = |signal| Sight::of(tid, signal).map(|sight| sight.blocks);
        assert_ne!(blocks(libc::SIGWINCH), Some(true));
        {
            let _blocked = block(libc::SIGWINCH);
            assert!(is_blocked(libc::SIGWINCH));
            assert_ne!(blocks(libc::SIGWINCH), Some(false));
            assert_ne!(blocks(libc::SIGWINCH - 1), Some(true));
        }
        assert!(!is_blocked(libc::SIGWINCH));
    }

    /// Those by which a C library cancels threads have the numbers from 32 on, which are not in a set that it fills itself.
    #[test]
    fn a_handler_blocks_all_signals() {
        extern "C" fn nothing(_: libc::c_int) {}
        let before = handle(libc::SIGUSR2, nothing).unwrap();
        let now = action(libc::SIGUSR2).unwrap();
        // SAFETY: the mask is a set of at least 64 bits.
        let mask = unsafe { (&raw const now.sa_mask).cast::<u64>().read() };
        let never = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        assert_eq!(mask | never, u64::MAX);
        give_back(libc::SIGUSR2, nothing, &before);
    }

    #[test]
    fn a_signal_that_nobody_handles_is_not_taken() {
        extern "C" fn nothing(_: libc::c_int) {}
        assert!(!is_taken(libc::SIGWINCH, nothing).unwrap() && !is_handled_by(libc::SIGWINCH, nothing));
        assert!(is_taken(libc::SIGSEGV, nothing).unwrap(), "the standard library handles it");
        assert!(is_taken(0, nothing).is_err() && handle(libc::SIGKILL, nothing).is_err());
    }

    /// Two functions take a signal and give it back, in either order.
    #[test]
    fn what_was_done_before_is_restored() {
        extern "C" fn nothing(_: libc::c_int) {}
        extern "C" fn another(_: libc::c_int) {}
        let now = || action(libc::SIGXFSZ).unwrap().sa_sigaction;
        for before in [libc::SIG_IGN, libc::SIG_DFL, another as Handler as usize] {
            for is_first_first in [true, false] {
                // SAFETY: the handler is a function that does nothing, or none.
                unsafe { libc::signal(libc::SIGXFSZ, before) };
                let first = handle(libc::SIGXFSZ, nothing).unwrap();
                let second = handle(libc::SIGXFSZ, nothing).unwrap();
                assert_eq!((first.sa_sigaction, second.sa_sigaction), (before, nothing as Handler as usize));
                let order = if is_first_first { [first, second] } else { [second, first] };
                order.iter().for_each(|before| give_back(libc::SIGXFSZ, nothing, before));
                assert_eq!(now(), before);
            }
        }
        let default = handle(libc::SIGXFSZ, nothing).unwrap();
        handle(libc::SIGXFSZ, another).unwrap();
        give_back(libc::SIGXFSZ, nothing, &default);
        assert_eq!(now(), another as Handler as usize, "another function was installed since");
    }

    #[test]
    fn a_thread_is_seen_whatever_its_name() {
        let status =
            "Name:\ta) R 1\nState:\tS (sleeping)\nSigPnd:\t0000000000200000\nSigBlk:\t0000000000400000\n";
        let stat = "7 (a) R 1) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        let sight = |signal| Sight::parse(status, stat, signal);
        let sleeping = Sight { blocks: false, is_pending: false, sleeps: true, has_ended: false, ticks: 300 };
        assert_eq!(sight(24), Some(sleeping));
        assert_eq!(sight(23), Some(Sight { blocks: true, ..sleeping }));
        assert_eq!(sight(22), Some(Sight { is_pending: true, ..sleeping }));
        for (state, has_ended) in [("R (running)", false), ("Z (zombie)", true), ("X (dead)", true)] {
            let status = status.replace("S (sleeping)", state);
            let seen = Sight::parse(&status, stat, 24);
            assert_eq!(seen, Some(Sight { sleeps: false, has_ended, ..sleeping }), "{state}");
        }
        assert_eq!(Sight::parse("State:\tR\n", stat, 23), None);
        assert_eq!(Sight::parse(status, "7 (a) S 1 2", 23), None);
    }
}
