//! The hooks around `fork`.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use stillpoint_sys::os;

use super::flavour::of;
use crate::border::{call, Refusal};

/// liburcu's, to C: the hooks of its hash tables.
#[repr(C)]
pub struct urcu_atfork {
    before_fork: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    after_fork_parent: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    after_fork_child: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    _private: *mut c_void,
}

const _: () = assert!(size_of::<urcu_atfork>() == 4 * size_of::<usize>());

/// # Safety
/// The hooks were registered, if they are not null.
unsafe fn run(
    hooks: *mut urcu_atfork,
    which: impl FnOnce(&urcu_atfork) -> Option<unsafe extern "C-unwind" fn(*mut c_void)>,
) {
    // SAFETY: the caller's promise.
    let Some(hooks) = (unsafe { hooks.as_ref() }) else { return };
    if let Some(hook) = which(hooks) {
        // SAFETY: who has registered it has promised that it may be called.
        unsafe { hook(hooks._private) };
    }
}

/// Until one of the two functions below, no callback of the flavour runs, and no worker is made or freed.
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
                    // One after the other: between two forks queues are served.
                    drop(lock);
                    os::wait(&flavour.shared.forking, 1, None);
                    continue;
                }
                // From now on workers are paused when they are made, and nobody waits for the end of a pause.
                flavour.begin_fork(&mut lock);
                lock.live.iter().copied().chain(flavour.deferring()).collect()
            };
            let is_in_barrier = Cell::new(false);
            let gives_up = || {
                is_in_barrier.set(is_in_barrier.get() || flavour.has_inner_barrier());
                is_in_barrier.get()
            };
            // Not under the lock: a callback that is running may want it.
            let pauses: Vec<_> =
                workers.into_iter().map(|worker| worker.queue.pause_to_fork(gives_up)).collect();
            let mut lock = flavour.lock();
            if !is_in_barrier.get() {
                break (pauses, lock);
            }
            // A callback waits for those of another queue, which is paused.
            drop(pauses);
            flavour.end_fork(&mut lock);
            drop(lock);
            flavour.wait_for_inner_barriers();
        };
        lock.pauses = pauses;
        let hooks = lock.atfork;
        lock.keep();
        // SAFETY: they are registered.
        unsafe { run(hooks, |hooks| hooks.before_fork) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_after_fork_parent_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(mut lock) = flavour.kept() else {
            return Err(Refusal::invalid(format!(
                "urcu-{}: call_rcu_after_fork_parent without call_rcu_before_fork by this thread",
                flavour.name()
            )));
        };
        let (hooks, pauses) = (lock.atfork, std::mem::take(&mut lock.pauses));
        drop(pauses);
        flavour.end_fork(&mut lock);
        // Of a worker that was made meanwhile, by this thread.
        flavour.start_missing(&lock);
        drop(lock);
        // SAFETY: they are registered.
        unsafe { run(hooks, |hooks| hooks.after_fork_parent) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_after_fork_child_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(mut lock) = flavour.kept() else {
            return Err(Refusal::invalid(format!(
                "urcu-{}: call_rcu_after_fork_child without call_rcu_before_fork by the thread that forked",
                flavour.name()
            )));
        };
        flavour.end_fork_in_child(&mut lock);
        if let Some(group) = flavour.peek() {
            note_reset(flavour.number());
            // SAFETY: the only thread of a child; the queues were paused.
            unsafe {
                group.domain.reset_after_fork();
                flavour.reset_workers(&mut lock);
            }
        }
        let hooks = lock.atfork;
        // They have ended already.
        lock.pauses.clear();
        drop(lock);
        // SAFETY: they are registered.
        unsafe { run(hooks, |hooks| hooks.after_fork_child) };
        Ok(())
    });
}

/// The process in which each flavour was reset last: its child hooks come in any order, and there are workers after the first one.
static RESET_IN: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// Notes a reset in this process, and returns whether it is the first one.
fn note_reset(flavour: u32) -> bool {
    let process = std::process::id();
    // Relaxed: of the thread that forked.
    RESET_IN.get(flavour as usize).is_none_or(|reset| reset.swap(process, Ordering::Relaxed) != process)
}

/// Before a `fork`: the child may have the number of the process that was reset last.
#[no_mangle]
pub extern "C" fn still_urcu_forget_reset_(flavour: u32) {
    if let Some(reset) = RESET_IN.get(flavour as usize) {
        // Relaxed: as above.
        reset.store(0, Ordering::Relaxed);
    }
}

/// In a child: the other threads are no readers any more.
#[no_mangle]
pub extern "C" fn still_urcu_reset_after_fork_(flavour: u32) {
    call(|| {
        if let Some(group) = of(flavour).peek().filter(|_| note_reset(flavour)) {
            // SAFETY: the caller says that this is the only thread of a child.
            unsafe { group.domain.reset_after_fork() };
        }
        Ok(())
    });
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_register_atfork_(flavour: u32, hooks: *mut urcu_atfork) {
    call(|| {
        let mut lock = of(flavour).lock();
        // One for all tables, as liburcu's.
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
