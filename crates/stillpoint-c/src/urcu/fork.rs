//! The hooks around `fork`.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use stillpoint_sys::os;

use super::flavour::{all, of, Flavour, Locked, STILL_URCU_BP};
use super::worker::Workers;
use crate::border::{call, Refusal};

/// liburcu's struct, to C: the fork hooks of its hash tables.
#[repr(C)]
pub struct urcu_atfork {
    before_fork: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    after_fork_parent: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    after_fork_child: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    _private: *mut c_void,
}

const _: () = assert!(size_of::<urcu_atfork>() == 4 * size_of::<usize>());

/// Calls one of the hooks, if there are any.
///
/// # Safety
/// `hooks` is null, or the address of hooks that were registered.
unsafe fn run(
    hooks: *mut urcu_atfork,
    which: impl FnOnce(&urcu_atfork) -> Option<unsafe extern "C-unwind" fn(*mut c_void)>,
) {
    // SAFETY: the hooks are null, or were registered, by the caller's promise.
    let Some(hooks) = (unsafe { hooks.as_ref() }) else { return };
    if let Some(hook) = which(hooks) {
        // SAFETY: the caller that registered the hook promised that it may be called.
        unsafe { hook(hooks._private) };
    }
}

/// Prepares the flavour for a fork. Until one of the two functions below is called, none of its callbacks runs, and no other thread makes
/// or frees a worker.
#[no_mangle]
pub extern "C" fn still_urcu_before_fork_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        if flavour.is_within_callback() {
            return Err(flavour.waits_for_itself("call_rcu_before_fork", "by a callback"));
        }
        still_urcu_forget_reset_(flavour.number());
        let (pauses, mut lock) = loop {
            let workers: Vec<_> = {
                let mut lock = flavour.lock();
                if lock.is_borrowed() {
                    return Err(
                        flavour.waits_for_itself("call_rcu_before_fork", "between the hooks of a fork")
                    );
                }
                if lock.is_forking {
                    // Only one thread forks at a time, so that queues are served between two forks.
                    drop(lock);
                    os::wait(&flavour.shared.forking, 1, None);
                    continue;
                }
                // From now on, new workers are paused when they are made, and no thread that frees a worker waits for a pause.
                flavour.begin_fork(&mut lock);
                lock.live.iter().copied().chain(flavour.deferring()).collect()
            };
            let is_in_barrier = Cell::new(false);
            let gives_up = || {
                is_in_barrier.set(is_in_barrier.get() || flavour.has_inner_barrier());
                is_in_barrier.get()
            };
            // Not under the lock, because a callback that is running may need it.
            let pauses: Vec<_> =
                workers.into_iter().map(|worker| worker.queue.pause_to_fork(gives_up)).collect();
            let mut lock = flavour.lock();
            if !is_in_barrier.get() {
                break (pauses, lock);
            }
            // A callback waits for callbacks of another queue, which is paused. So this ends the pauses, waits, and tries again.
            drop(pauses);
            flavour.end_fork(&mut lock);
            drop(lock);
            flavour.wait_for_inner_barriers();
        };
        lock.pauses = pauses;
        let hooks = lock.atfork;
        lock.keep();
        // SAFETY: the hooks are registered, or null.
        unsafe { run(hooks, |hooks| hooks.before_fork) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_after_fork_parent_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(mut lock) = flavour.kept() else {
            let text = c"urcu-{}: call_rcu_after_fork_parent without call_rcu_before_fork by this thread";
            return Err(Refusal::invalid(text).with(flavour.name()));
        };
        let (hooks, pauses) = (lock.atfork, std::mem::take(&mut lock.pauses));
        drop(pauses);
        flavour.end_fork(&mut lock);
        // With the lock, as the hook before the fork: that of liburcu's hash tables counts forks without a lock of its own.
        lock.keep();
        // SAFETY: the hooks are registered, or null.
        unsafe { run(hooks, |hooks| hooks.after_fork_parent) };
        drop(flavour.kept());
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_after_fork_child_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(mut lock) = flavour.kept() else {
            let text =
                c"urcu-{}: call_rcu_after_fork_child without call_rcu_before_fork by the thread that forked";
            return Err(Refusal::invalid(text).with(flavour.name()));
        };
        // The threads that are started below may use the other flavours, which another hook resets too late.
        for other in all().filter(|other| !ptr::eq(*other, flavour)) {
            if let Some(mut lock) = other.kept() {
                // SAFETY: no hook has started a thread of the child, or this does nothing; and the queues were paused.
                unsafe { reset(other, &mut lock) };
                lock.keep();
            } else if other.number() == STILL_URCU_BP {
                // A program may call only the hooks of bp that are not those of `call_rcu`.
                reset_readers(other);
            }
        }
        // SAFETY: as above.
        unsafe { reset(flavour, &mut lock) };
        flavour.start_missing(&lock);
        let hooks = lock.atfork;
        drop(lock);
        // SAFETY: the hooks are registered, or null.
        unsafe { run(hooks, |hooks| hooks.after_fork_child) };
        Ok(())
    });
}

/// Resets a flavour in the child, unless an earlier hook has done so. Starts no thread.
///
/// # Safety
/// If none has, the calling thread is the only one of a child, and the flavour's queues were paused.
unsafe fn reset(flavour: &'static Flavour, lock: &mut Locked<'_, Workers>) {
    if !lock.is_forking {
        return;
    }
    flavour.end_fork_in_child(lock);
    note_reset(flavour.number());
    if let Some(group) = flavour.peek() {
        // SAFETY: the caller's promise.
        unsafe {
            group.domain.reset_after_fork();
            flavour.reset_workers(lock);
        }
    }
    // The reset of the queues has ended their pauses.
    lock.pauses.clear();
}

/// The process in which each flavour was reset last. A child may call the hooks in any order. The first one starts workers, so only the
/// first one may reset the flavour.
static RESET_IN: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// Records a reset in this process. Returns whether it is the first one.
fn note_reset(flavour: u32) -> bool {
    let process = std::process::id();
    // Relaxed: only the thread that forked calls this.
    RESET_IN.get(flavour as usize).is_none_or(|reset| reset.swap(process, Ordering::Relaxed) != process)
}

/// Clears the record before a `fork`, because the child may get the process id of the process that was reset last.
#[no_mangle]
pub extern "C" fn still_urcu_forget_reset_(flavour: u32) {
    if let Some(reset) = RESET_IN.get(flavour as usize) {
        // Relaxed: only the thread that forks calls this.
        reset.store(0, Ordering::Relaxed);
    }
}

/// In a child: ends the readers of the parent's other threads.
#[no_mangle]
pub extern "C" fn still_urcu_reset_after_fork_(flavour: u32) {
    call(|| {
        reset_readers(of(flavour));
        Ok(())
    });
}

/// In a child, unless that was done before: ends the readers of the parent's other threads.
fn reset_readers(flavour: &'static Flavour) {
    // Also if it was not used yet: a thread of the child may use it before the next hook.
    let is_first = note_reset(flavour.number());
    if let Some(group) = flavour.peek().filter(|_| is_first) {
        // SAFETY: the caller of the hook promises that this is the only thread of a child.
        unsafe { group.domain.reset_after_fork() };
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_register_atfork_(flavour: u32, hooks: *mut urcu_atfork) {
    call(|| {
        let mut lock = of(flavour).lock();
        // As in liburcu, there is one set of hooks for all tables.
        if lock.atforks == 0 {
            lock.atfork = hooks;
        }
        lock.atforks += 1;
        Ok(())
    });
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_unregister_atfork_(flavour: u32, _hooks: *mut urcu_atfork) {
    call(|| {
        let mut lock = of(flavour).lock();
        lock.atforks = lock.atforks.saturating_sub(1);
        if lock.atforks == 0 {
            lock.atfork = std::ptr::null_mut();
        }
        Ok(())
    });
}
