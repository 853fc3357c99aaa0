//! Fences by signals, for domains.

use std::sync::atomic::AtomicU32;

use stillpoint::fence::{FenceProvider, Provider};

use crate::run::Late;
use crate::signals::{self, SignalError};

/// Fences the readers of a domain by signals. It is for processes in which membarrier(2) is refused, and whose
/// readers should not issue fences themselves. The domain registers the threads of its readers.
///
/// A thread that blocks the signal when it becomes a reader issues full fences itself. If a thread blocks the signal later,
/// fences fail after some tenths of a second with an error that says so, and nothing is freed. The error numbers are
/// `EDEADLK` if a thread blocks the signal, `EBUSY` if the program handles the signal itself, `ESRCH` if a thread has ended
/// without leaving, and `ETIMEDOUT` if a thread does not answer for an unknown reason.
///
/// ```
/// use stillpoint::fence::Mode;
/// use stillpoint::rcu::Domain;
/// use stillpoint_multicast::signals;
///
/// let domain = Domain::builder().fence(Mode::Provided(signals::PROVIDER)).build()?;
/// let cell = domain.cell(1);
/// let reader = domain.reader(); // the thread is registered as long as the reader lives
/// assert_eq!(signals::members(), 1);
/// assert_eq!(*cell.protect(&reader).unwrap(), 1);
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
pub const PROVIDER: Provider = Provider::new(&SignalFences);

struct SignalFences;

// SAFETY: a fence makes every registered thread execute a full barrier in its handler, or fails: see `SignalMulticast::fence`.
// A thread is registered while it is bound. When it leaves for good, it ends its light fences and sets the bits before it leaves
// the group: see the drop of `Registered`.
unsafe impl FenceProvider for SignalFences {
    fn name(&self) -> &'static str {
        "signals"
    }

    fn probe(&self) -> Result<(), i32> {
        signals::probe().map_err(error_number)
    }

    fn heavy(&self) -> Result<(), i32> {
        let multicast = signals::multicast().map_err(error_number)?;
        multicast.fence().map(drop).map_err(|late: Late| late.raw_os_error())
    }

    unsafe fn bind(&self, word: &AtomicU32, bits: u32) -> bool {
        // SAFETY: the word is alive until the thread is unbound, or for ever, by the caller's promise.
        unsafe { signals::bind(word, bits) }
    }

    fn unbind(&self, word: &AtomicU32) {
        signals::unbind(word);
    }

    fn explain(&self, errno: i32) -> String {
        let text = match errno {
            libc::EDEADLK => {
                "a thread with a reader blocks the signal of fences; unblock it there, or drop the reader first"
            }
            libc::EBUSY => {
                "the program handles the signal of fences itself; choose another one with stillpoint_multicast::signals::choose"
            }
            libc::ESRCH => {
                "a thread with a reader has ended without leaving; let threads return, or drop their readers first"
            }
            libc::ETIMEDOUT => {
                "a thread with a reader does not answer; let it run, or drop its reader before you stop it"
            }
            _ => {
                let cause = std::io::Error::from_raw_os_error(errno);
                return format!("the kernel refused the signal ({cause}); build the domain in symmetric mode");
            }
        };
        text.to_owned()
    }
}

fn error_number(error: SignalError) -> i32 {
    match error {
        SignalError::Taken { .. } => libc::EBUSY,
        SignalError::Blocked { .. } => libc::EDEADLK,
        SignalError::Ending => libc::ESRCH,
        SignalError::Refused { errno, .. } => errno,
        SignalError::Started { .. } | SignalError::Unsuitable { .. } => libc::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_do() {
        let text = |errno| SignalFences.explain(errno);
        assert!(text(libc::EDEADLK).contains("blocks"));
        assert!(text(libc::EBUSY).contains("signals::choose"));
        assert!(text(libc::ESRCH).contains("has ended"));
        assert!(text(libc::ETIMEDOUT).contains("does not answer"));
        assert!(text(libc::EPERM).contains("symmetric mode"));
    }
}
