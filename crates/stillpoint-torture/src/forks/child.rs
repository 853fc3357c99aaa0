//! The child of a fork, which uses the domain that it has inherited.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::{Guard, Protected, Reader};

use crate::arena::{Handle, Maker};
use crate::hold::Kind;
use crate::looks::Looks;
use crate::world::{PATIENCE, World};

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
        self.world.context.findings.add(what);
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
                    let Some(object) = world.cell(&mut rng).protect(&reader) else { continue };
                    if let Some(identity) = context.meet(&object, hold, &mut looks) {
                        context.meet_again(&object, identity, hold, &mut looks);
                    }
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
