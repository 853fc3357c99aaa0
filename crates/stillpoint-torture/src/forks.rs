//! Forks in the middle of everything: the child resets its domain, continues to reclaim, and reports its findings.
//!
//! The threads of the parent may be anywhere at the fork: registering, inside sections, retiring, waiting. The child has none
//! of them, and must not wait for them. It uses the domain that it has inherited.

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::{Guard, Protected, Reader};

use crate::actor::{Shared, is_over, join, join_all};
use crate::arena::{Handle, Maker};
use crate::counts::{Count, Kind, Looks, Tally};
use crate::findings::PATIENCE;
use crate::mixed;
use crate::part::{Setting, Stage, World};

/// Threads of the parent, without the one that forks: a writer, two readers, and one that starts threads.
const THREADS: usize = 4;
/// The longest time between two forks.
const PAUSE: Duration = Duration::from_millis(8);
/// Seconds after which the kernel ends a child that does not end by itself. This is before the watchdog ends the parent.
const LONGEST: u32 = 10;

/// Forks again and again while other threads use the domain.
pub(crate) fn run(stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<Tally, String> {
    let Stage { context, cpus, .. } = *stage;
    let mut first = Maker::new(context, THREADS);
    let setting = Setting::unlimited(stage.mode(rng), rng);
    let (world, mut background) = World::new(context, &setting, THREADS + 1, &mut first, rng)?;
    let (shared, mut tally) = (Shared::new(THREADS, cpus), Tally::default());
    thread::scope(|scope| {
        let background = scope.spawn(move || background.run());
        let worlds = std::slice::from_ref(&world);
        let workers = shared.crew(scope, context, rng, move |actor| mixed::work(worlds, actor));
        let begun = Instant::now();
        // Makes at least one child of each kind, even if the time is up.
        for turn in 0.. {
            thread::sleep(PAUSE.mul_f64(rng.f64()));
            fork(&mut tally, &world, turn, &mut first, rng);
            if is_over(context) || (turn >= 2 && begun.elapsed() >= time) {
                break;
            }
        }
        shared.stop();
        // What they count is of no interest here.
        join_all(context, workers);
        world.handle.stop();
        join(context, background);
    });
    drop(first);
    world.close(true);
    Ok(tally)
}

/// Forks while the caller's reader is in one of its states.
fn fork(tally: &mut Tally, world: &World, turn: u32, maker: &mut Maker, rng: &mut Rng) {
    let reader = world.domain.reader();
    let (guard, protected) = match turn % 3 {
        0 => (None, None),
        1 => (Some(reader.pin()), None),
        _ => (None, world.cell(rng).protect(&reader)),
    };
    tally.count([Count::Free, Count::Guarded, Count::Protecting][turn as usize % 3]);
    let child = Child { world, reader: &reader, maker, rng: rng.fork(), guard, protected };
    let begun = Instant::now();
    if let Err(what) = in_child(|| child.live()) {
        world.context.find(|| format!("the child of a fork failed: {what}"));
    }
    tally.times[0].add(begun.elapsed());
}

/// Runs `body` in a child, and waits for its end. The error is what the child found, or how it ended.
fn in_child(body: impl FnOnce() -> Vec<String>) -> Result<(), String> {
    let (mut answer, mut report) = std::io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
    // SAFETY: the child uses only what works after a `fork`: the C library resets its allocator, and the alarm ends a wait for a
    // lock of another thread.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(format!("cannot fork: {}", std::io::Error::last_os_error()));
    }
    if child == 0 {
        // SAFETY: no memory is passed. The child ends with its parent, or by the alarm.
        unsafe {
            libc::alarm(LONGEST);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let findings =
            catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| vec!["it panicked".to_owned()]);
        let written = report.write_all(findings.join("; ").as_bytes()).is_ok();
        let failed = !findings.is_empty() || !written;
        // SAFETY: no preconditions. No destructor runs: the values on the stack belong to the parent.
        unsafe { libc::_exit(failed.into()) }
    }
    // On a busy machine the child may take long: the parent must not hold a guard of the body meanwhile.
    drop((report, body));
    let mut text = String::new();
    // Ends when the child does. A read error only shortens the text.
    let _ = answer.read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: `status` is alive for the call.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(format!("cannot wait for the child: {error}"));
        }
    }
    match status {
        0 => Ok(()),
        _ if libc::WIFSIGNALED(status) => Err(format!("signal {} ended it", libc::WTERMSIG(status))),
        _ => Err(text),
    }
}

/// Objects that each phase of the child retires.
const OBJECTS: u64 = 100;
/// The limit of a flush that may not succeed.
const SHORTLY: Duration = Duration::from_millis(50);

pub(super) struct Child<'c> {
    pub(super) world: &'c World,
    pub(super) reader: &'c Reader,
    pub(super) maker: &'c mut Maker,
    pub(super) rng: Rng,
    /// Held by the thread that forked.
    pub(super) guard: Option<Guard<'c>>,
    pub(super) protected: Option<Protected<'c, Handle>>,
}

impl Child<'_> {
    /// Runs all phases. Returns the findings.
    pub(super) fn live(mut self) -> Vec<String> {
        let findings = self.world.context.findings;
        if findings.any() {
            // The finding is the parent's, which ends anyway.
            return Vec::new();
        }
        // SAFETY: this is the only thread of the child, and the one that forked.
        unsafe { self.world.domain.reset_after_fork() };
        self.count_readers();
        self.check_tokens();
        self.reclaim();
        self.share();
        findings.texts()
    }

    fn find(&self, what: impl FnOnce() -> String) {
        self.world.context.find(what);
    }

    /// Only the child's own reader is registered.
    fn count_readers(&self) {
        let readers = self.world.domain.stats().readers;
        if readers != 1 {
            self.find(|| format!("there are {readers} readers after the reset, not 1"));
        }
    }

    /// Only the child's own guard holds up tokens.
    fn check_tokens(&mut self) {
        let domain = &self.world.domain;
        if let Some(guard) = self.guard.take() {
            let token = domain.start();
            if domain.check(token) {
                self.find(|| "a token was over inside the guard that was held over the fork".to_owned());
            }
            drop(guard);
        }
        if !domain.check(domain.start()) {
            self.find(|| "a token was not over although no reader was left".to_owned());
        }
        if let Err(error) = domain.synchronize_timeout(PATIENCE) {
            self.find(|| format!("a wait failed: {error}"));
        }
    }

    /// Frees the objects that it retires, except the one that it protects.
    fn reclaim(&mut self) {
        let World { context, domain, .. } = self.world;
        let mut reclaimer = domain.reclaimer();
        let before = context.destroyed();
        let mut retired = 0;
        for _ in 0..OBJECTS {
            if let Some(old) = self.world.cell(&mut self.rng).swap(self.maker.make()) {
                retired += u64::from(reclaimer.retire(old).is_ok());
            }
        }
        if self.protected.is_some() {
            // The protected object may or may not be among them.
            match reclaimer.flush_timeout(SHORTLY) {
                Ok(()) => {}
                Err(SynchronizeError::WouldDeadlock { reader: ReaderKind::ProtectedLoad, .. }) => {}
                answer => self.find(|| format!("a flush beside a protected load ended with {answer:?}")),
            }
            self.protected = None;
        }
        match reclaimer.flush_timeout(PATIENCE) {
            Ok(()) if context.destroyed() - before >= retired => {}
            answer => {
                let freed = context.destroyed() - before;
                self.find(|| {
                    format!("{freed} of {retired} objects were freed, and the flush said {answer:?}")
                });
            }
        }
    }

    /// Starts a thread that reads while the child reclaims.
    fn share(&mut self) {
        let World { context, domain, .. } = self.world;
        let (stop, hold) = (AtomicBool::new(false), self.world.hold(Kind::Protected));
        let (world, mut rng) = (self.world, self.rng.fork());
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let reader = domain.reader();
                let mut looks = Looks::default();
                // Relaxed: a flag; the thread is joined.
                while !stop.load(Ordering::Relaxed) {
                    context.watch(world.cell(&mut rng).protect(&reader).as_deref(), hold, &mut looks, 1);
                }
            });
            let mut reclaimer = domain.reclaimer();
            for _ in 0..OBJECTS {
                if let Some(old) = self.world.cell(&mut self.rng).swap(self.maker.make()) {
                    drop(reclaimer.retire(old));
                }
                reclaimer.poll();
                // The child's first thread also begins and ends sections.
                drop(self.reader.pin());
            }
            // Relaxed: see above.
            stop.store(true, Ordering::Relaxed);
            if reading.join().is_err() {
                self.find(|| "a thread of the child panicked".to_owned());
            }
            if let Err(error) = reclaimer.flush_timeout(PATIENCE) {
                self.find(|| format!("an object that a thread of the child had read was not freed: {error}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_finds_comes_back() {
        assert_eq!(in_child(Vec::new), Ok(()));
        assert_eq!(in_child(|| vec!["this".to_owned(), "that".to_owned()]), Err("this; that".to_owned()));
        // SAFETY: no preconditions.
        let killed = in_child(|| unsafe { libc::_exit(libc::kill(libc::getpid(), libc::SIGKILL)) });
        assert_eq!(killed, Err("signal 9 ended it".to_owned()));
    }
}
