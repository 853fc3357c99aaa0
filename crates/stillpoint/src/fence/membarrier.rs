//! `int membarrier(int cmd, unsigned int flags, int cpu_id)`
//!
//! The private expedited command works only after the process has registered for it. Registration belongs to
//! the address space: a child made by `fork` has it, unless its parent registered during the `fork`; a program started by
//! `exec` does not.

#![cfg(not(any(stillpoint_loom, miri)))]

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{
    MEMBARRIER_CMD_PRIVATE_EXPEDITED as BARRIER, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as REGISTER,
};
use stillpoint_sys::linux::outcome;

use super::FenceError;

/// With both commands, `flags` and `cpu_id` are 0.
fn membarrier(command: libc::c_int) -> Result<(), FenceError> {
    // SAFETY: no pointers are passed.
    outcome(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0).map_err(FenceError::new)
}

/// Registers the process, tries one barrier, and keeps the kernel's answer, until a thread is refused for good. No thread waits for
/// another, so the child of a `fork` during this call does not wait for ever.
pub(super) fn register() -> Result<(), FenceError> {
    // Relaxed: only the number matters.
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            let answer = first();
            match answer {
                // Relaxed, as above. A refusal that another thread has noted meanwhile stays.
                Ok(()) => _ = ANSWER.compare_exchange(UNKNOWN, 0, Ordering::Relaxed, Ordering::Relaxed),
                Err(error) => note_refusal(error),
            }
            answer
        }
        0 => Ok(()),
        errno => Err(FenceError::new(errno)),
    }
}

/// As [`register`], but asks the kernel once more, without a barrier: a filter may have been installed meanwhile.
pub(super) fn confirm() -> Result<(), FenceError> {
    register()?;
    membarrier(REGISTER).inspect_err(|&error| note_refusal(error))
}

/// What domains that are made from now on may expect: `UNKNOWN`, 0 if a barrier has succeeded, or the errno of a thread that was
/// refused for good.
static ANSWER: AtomicI32 = AtomicI32::new(UNKNOWN);
const UNKNOWN: i32 = -1;

/// Keeps a refusal, for domains that are made later, unless another attempt may succeed.
fn note_refusal(error: FenceError) {
    if error.raw_os_error() != libc::ENOMEM {
        // Relaxed: only the number matters.
        ANSWER.store(error.raw_os_error(), Ordering::Relaxed);
    }
}

/// Registers, and issues a barrier: a filter may allow one but not the other.
fn first() -> Result<(), FenceError> {
    membarrier(REGISTER)?;
    membarrier(BARRIER)
}

/// A full barrier on every thread of the process. Asks the kernel whatever it has answered before: filters are per thread, so another
/// thread's refusal does not concern this one.
///
/// What fails is tried once more, after a registration: nothing may have registered the process. It need not be registered
/// even if `ANSWER` says so: `fork` copies the registration before it copies memory, and if another thread registered in between, the
/// child has only the answer. If that fails, too, the refusal is one for good.
pub(super) fn private_expedited() -> Result<(), FenceError> {
    membarrier(BARRIER).or_else(|_| first().inspect_err(|&error| note_refusal(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::process::Command;

    const CHILD: &str = "STILLPOINT_UNREGISTERED";

    /// The child of a `fork` during the registration may have the answer without the registration.
    #[test]
    fn a_process_with_the_answer_only_registers_itself() {
        if env::var_os(CHILD).is_none() {
            // In a new process, which nothing has registered.
            let program = env::current_exe().expect("a process can find its program");
            let name = "fence::membarrier::tests::a_process_with_the_answer_only_registers_itself";
            let child =
                Command::new(program).args([name, "--exact"]).env(CHILD, "").output().expect("it starts");
            let said = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        ANSWER.store(0, Ordering::Relaxed);
        assert!(membarrier(BARRIER).is_err(), "the process was registered");
        let answer = private_expedited();
        // Where the kernel has no membarrier, or a filter forbids it, both fail.
        assert_eq!(answer.is_ok(), first().is_ok(), "{answer:?}");
    }
}
