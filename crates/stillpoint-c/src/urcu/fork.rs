//! The hooks around `fork`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use super::flavour::of;
use super::report;
use crate::border::call;

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
            report(flavour, "call_rcu_before_fork was called by a callback, and would wait for itself");
            return Ok(());
        }
        let (mut paused, mut pauses) = (Vec::new(), Vec::new());
        let mut lock = loop {
            let lock = flavour.lock();
            let mut workers = lock.live.iter().copied().chain(flavour.deferring());
            // A callback that is running may want the lock.
            let Some(worker) =
                workers.find(|worker| !paused.iter().any(|other| std::ptr::eq(*other, *worker)))
            else {
                break lock;
            };
            drop(lock);
            pauses.push(worker.queue.pause_to_fork(|| false));
            paused.push(worker);
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
            report(flavour, "call_rcu_after_fork_parent without call_rcu_before_fork by this thread");
            return Ok(());
        };
        let (hooks, pauses) = (lock.atfork, std::mem::take(&mut lock.pauses));
        // Of a worker that was made meanwhile, by this thread.
        flavour.start_missing(&lock);
        drop(lock);
        drop(pauses);
        // SAFETY: they are registered.
        unsafe { run(hooks, |hooks| hooks.after_fork_parent) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_after_fork_child_(flavour: u32) {
    call(|| {
        note_reset(flavour);
        let flavour = of(flavour);
        let Some(mut lock) = flavour.kept() else {
            report(
                flavour,
                "call_rcu_after_fork_child without call_rcu_before_fork by the thread that forked",
            );
            return Ok(());
        };
        if let Some(group) = flavour.peek() {
            // SAFETY: the only thread of a child; the queues were paused.
            unsafe {
                group.domain.reset_after_fork();
                flavour.reset_workers(&mut lock);
            }
        }
        let (hooks, pauses) = (lock.atfork, std::mem::take(&mut lock.pauses));
        drop(lock);
        // They have ended already.
        drop(pauses);
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
