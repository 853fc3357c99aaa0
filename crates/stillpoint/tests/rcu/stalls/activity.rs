//! What a reader's thread is doing.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread;

use stillpoint::rcu::wait::{Activity, ReaderKind, Stall, SynchronizeError};
use stillpoint::rcu::Domain;

use super::{until, while_pinned};
use crate::ending::Ending;
use crate::skip::skipped;
use crate::SHORT;

/// The stall of a domain that certainly has a reader in its way.
fn stall(domain: &Domain) -> Stall {
    domain.stall().expect("a reader is in the way")
}

/// Runs `hold` inside a guard on a new thread, and meanwhile `test` with the id of that thread.
fn while_holding(domain: &Domain, hold: impl FnOnce() + Send, test: impl FnOnce(u32)) {
    let (held, is_held) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let reader = domain.reader();
            let guard = reader.pin();
            held.send(own_id()).expect("the test waits for it");
            hold();
            drop(guard);
        });
        let id = is_held.recv().expect("the thread runs");
        domain.start();
        test(id);
    });
}

pub(super) fn own_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Binds the calling thread to the first processor that it may use.
fn stay_on_one_processor() {
    // SAFETY: a set of processors is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and of this size.
    let answer = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    // SAFETY: within the set.
    let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    // SAFETY: as above.
    unsafe {
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.expect("a thread may run somewhere"), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

#[test]
fn a_thread_that_waits_is_sleeping() {
    let domain = Domain::new();
    while_pinned(&domain, |_done| {
        domain.start();
        let stall = until(|| Some(stall(&domain)).filter(|stall| stall.activity == Activity::Sleeping));
        assert_eq!((stall.reader, stall.thread_name.as_deref()), (ReaderKind::Guard, Some("sleepy")));
        assert!(stall.cpu.is_some());
        assert!(stall.to_string().contains("(sleeping, last on CPU "), "{stall}");
    });
}

#[test]
fn a_thread_that_shares_its_processor_is_running_or_preempted() {
    let domain = Domain::new();
    let done = AtomicBool::new(false);
    let spin = || {
        stay_on_one_processor();
        while !done.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(spin);
        while_holding(&domain, spin, |_| {
            let _ending = Ending(|| done.store(true, Ordering::Relaxed));
            until(|| (stall(&domain).activity == Activity::Runnable).then_some(()));
            if thread::available_parallelism().map_or(1, usize::from) > 1 {
                // With a single processor, only the thread that looks could be running.
                until(|| (stall(&domain).activity == Activity::Running).then_some(()));
            }
        });
    });
}

#[test]
fn a_thread_that_has_ended_is_told_from_one_that_sleeps() {
    let domain = Domain::new();
    thread::scope(|scope| {
        let forgets = scope.spawn(|| {
            let reader = domain.reader();
            std::mem::forget(reader.pin());
            std::mem::forget(reader);
        });
        forgets.join().expect("it does not panic");
    });
    domain.start();
    // The kernel may forget the thread some microseconds late.
    let stall = until(|| Some(stall(&domain)).filter(|stall| stall.activity == Activity::Ended));
    assert_eq!((stall.thread_name.as_ref(), stall.cpu), (None, None));
    assert!(stall.to_string().contains("which has ended, has a region open"), "{stall}");
    let Err(SynchronizeError::Stalled(stall)) = domain.synchronize_timeout(SHORT) else { panic!("{stall}") };
    assert_eq!(stall.activity, Activity::Ended);
}

/// The end that is read, and the end that is written to.
fn pipe() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("there are descriptors")
}

/// Reads a byte. Makes only system calls.
fn block_on_read(descriptor: i32) {
    let mut byte = 0_u8;
    // SAFETY: the byte is writable.
    while unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) } < 0 {}
}

#[test]
fn a_thread_that_is_parked_in_a_signal_handler_is_sleeping() {
    static BLOCKS_ON: AtomicI32 = AtomicI32::new(-1);
    static IS_PARKED: AtomicBool = AtomicBool::new(false);

    extern "C" fn park(_signal: libc::c_int) {
        IS_PARKED.store(true, Ordering::Release);
        block_on_read(BLOCKS_ON.load(Ordering::Acquire));
    }

    let (blocks, released) = pipe();
    BLOCKS_ON.store(blocks.as_raw_fd(), Ordering::Release);
    // SAFETY: the handler does nothing but atomics and system calls.
    let before = unsafe { libc::signal(libc::SIGUSR2, park as extern "C" fn(libc::c_int) as libc::size_t) };
    assert_ne!(before, libc::SIG_ERR);

    let domain = Domain::new();
    let done = AtomicBool::new(false);
    let spin = || {
        while !done.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    while_holding(&domain, spin, |id| {
        let _ending = Ending(|| {
            (&released).write_all(&[1]).expect("the thread reads");
            done.store(true, Ordering::Relaxed);
        });
        // SAFETY: the thread runs until `done`.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR2) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
        until(|| IS_PARKED.load(Ordering::Acquire).then_some(()));
        let stall = until(|| Some(stall(&domain)).filter(|stall| stall.activity == Activity::Sleeping));
        assert_eq!(stall.thread_id, id);
    });
    assert_eq!(domain.stall(), None);
}

#[test]
fn a_thread_that_waits_for_its_vfork_is_uninterruptible() {
    extern "C" fn child(descriptor: *mut libc::c_void) -> libc::c_int {
        block_on_read(descriptor.addr() as i32);
        0
    }

    let (blocks, released) = pipe();
    let descriptor = blocks.into_raw_fd();
    let domain = Domain::new();
    let forks = move || {
        let mut stack = vec![0_u128; 4096];
        let flags = libc::CLONE_VFORK | libc::CLONE_VM | libc::SIGCHLD;
        let top = stack.as_mut_ptr_range().end.cast();
        let argument = std::ptr::without_provenance_mut(descriptor as usize);
        // SAFETY: the child has its own stack, which it leaves before this thread goes on, and it makes only system
        // calls.
        let pid = unsafe { libc::clone(child, top, flags, argument) };
        assert!(pid > 0, "{}", io::Error::last_os_error());
        // SAFETY: the child is ours. Its status is not needed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    };
    while_holding(&domain, forks, |_| {
        let _ending = Ending(|| (&released).write_all(&[1]).expect("the child reads"));
        until(|| (stall(&domain).activity == Activity::Uninterruptible).then_some(()));
    });
}

#[test]
fn a_thread_that_a_tracer_holds_is_stopped() {
    const NAME: &str = "stalls::activity::a_thread_that_a_tracer_holds_is_stopped";
    const TRACEE: &str = "STILLPOINT_TRACEE";
    if let Ok(tracee) = std::env::var(TRACEE) {
        return trace(tracee.parse().expect("it is an id"));
    }

    // SAFETY: no pointers are passed. It fails where every process of this user may trace anyway.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    let domain = Domain::new();
    let done = AtomicBool::new(false);
    let spin = || {
        while !done.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    };
    while_holding(&domain, spin, |id| {
        let _ending = Ending(|| done.store(true, Ordering::Relaxed));
        let mut tracer = Command::new(std::env::current_exe().expect("a process knows its program"))
            .args([NAME, "--exact", "--nocapture"])
            .env(TRACEE, id.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program runs");
        let mut said = Vec::new();
        let mut output = tracer.stdout.take().expect("it is piped");
        while !said.ends_with(b"STOPPED") && !said.ends_with(b"REFUSED") {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("the tracer says one or the other");
            said.push(byte[0]);
        }
        if said.ends_with(b"STOPPED") {
            assert_eq!(stall(&domain).activity, Activity::Stopped);
        } else {
            skipped("this machine does not let one process trace another");
        }
        drop(tracer.stdin.take());
        assert!(tracer.wait().expect("it was started").success());
    });
}

/// In a separate process: stops a thread of the parent until the standard input ends.
fn trace(tracee: libc::pid_t) {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests read and write no memory of this process.
    let stopped = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, tracee, null, null) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, tracee, null, null) == 0
            && libc::waitpid(tracee, std::ptr::null_mut(), libc::__WALL) == tracee
    };
    print!("{}", if stopped { "STOPPED" } else { "REFUSED" });
    io::stdout().flush().expect("the parent reads");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if stopped {
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, tracee, null, null) };
    }
}
