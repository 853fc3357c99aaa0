//! The readers' protocols.

use std::ptr::NonNull;

use super::record::{clear_hazard, set_hazard, Hazard, Kind, Record, PASSIVE};
use super::registry::Claim;
use super::Core;
use crate::busted::{self, Variant};
use crate::fence::{self, Mode};
use stillpoint_sys::sync::atomic::{fence as atomic_fence, AtomicPtr, Ordering};

impl Core {
    /// Registers the calling thread as a reader, which issues its side of the fences in this mode.
    pub(crate) fn register(&self, kind: Kind, mode: Mode) -> Claim<Record> {
        let claim = self.records.claim();
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        let is_unreached = mode != self.mode();
        record.adopt(kind, mode, self.helping().is_some(), is_unreached);
        #[cfg(not(any(loom, miri)))]
        if mode == Mode::Signals {
            record.fence_when_left();
        }
        if record.is_light() {
            // Relaxed: made visible by the fence below.
            self.light_readers.fetch_add(1, Ordering::Relaxed);
        }
        if kind == Kind::Qsbr {
            self.report(record);
        }
        if !busted::is(Variant::RegisterNoFence) {
            // SeqCst: pairs with the fence in `Core::fence`. Either that writer sees the claim, the count and
            // the state, or everything this reader loads from now on is newer than what the writer unlinked.
            atomic_fence(Ordering::SeqCst);
        }
        claim
    }

    /// The end of a reader. Whoever waits for it goes on.
    pub(crate) fn unregister(&self, claim: &Claim<Record>) {
        // SAFETY: the registry is alive.
        let record: &Record = unsafe { claim.slot() };
        if !busted::is(Variant::LeaveForgotten) {
            record.leave();
        }
        if record.is_light() {
            // Release: pairs with the acquire load in `Core::fence`: a writer that no longer counts this
            // reader comes after everything it read.
            let release = busted::order(Variant::UnregisterRelaxed, Ordering::Release);
            self.light_readers.fetch_sub(1, release);
        }
        self.notice(record);
        #[cfg(not(any(loom, miri)))]
        if self.mode() == Mode::Signals {
            record.stay_light();
        }
        record.abandon();
        self.records.release(claim);
    }

    /// Begins a section of a guard. The state before is [`PASSIVE`].
    #[inline(always)]
    pub(crate) fn enter(&self, mode: Mode, record: &Record) {
        // Acquire: pairs with the read-modify-write in `start`: a section that carries this token has seen
        // what was unlinked before the token was started.
        let token = self.token.load(busted::order(Variant::PinTokenRelaxed, Ordering::Acquire));
        record.publish(token, busted::order(Variant::EnterRelaxed, Ordering::Release));
        if !busted::is(Variant::PinNoLight) {
            mode.light();
        }
    }

    /// Ends a section of a guard.
    #[inline(always)]
    pub(crate) fn leave(&self, record: &Record) {
        record.publish(PASSIVE, busted::order(Variant::LeaveRelaxed, Ordering::Release));
        self.notice(record);
    }

    /// A quiescent state of a QSBR reader, or the first state of one that comes online.
    ///
    /// No fence: a state that a scan takes for passed carries a token of an acquire load, so the reader has
    /// seen the unlink; and until then the old state blocks.
    #[inline(always)]
    pub(crate) fn report(&self, record: &Record) {
        // Acquire: pairs with the read-modify-write in `start`.
        let token = self.token.load(busted::order(Variant::QsbrLoadRelaxed, Ordering::Acquire));
        record.publish(token, busted::order(Variant::QsbrStoreRelaxed, Ordering::Release));
        self.notice(record);
    }

    /// A QSBR reader promises not to read until [`online`](Core::online).
    pub(crate) fn offline(&self, record: &Record) {
        record.publish(PASSIVE, busted::order(Variant::OfflineRelaxed, Ordering::Release));
        self.notice(record);
    }

    /// A QSBR reader comes back.
    pub(crate) fn online(&self, record: &Record) {
        self.report(record);
        if !busted::is(Variant::OnlineNoFence) {
            // SeqCst: pairs with the fence in `Core::fence`, as in `register`.
            atomic_fence(Ordering::SeqCst);
        }
    }

    /// Runs `function` offline, and comes back online also when it panics.
    pub(crate) fn while_offline<R>(&self, record: &Record, function: impl FnOnce() -> R) -> R {
        struct Online<'c>(&'c Core, &'c Record);

        impl Drop for Online<'_> {
            fn drop(&mut self) {
                self.0.online(self.1);
            }
        }

        self.offline(record);
        let _online = Online(self, record);
        function()
    }

    /// After the state was published: looks whether somebody waits for this, or has helped.
    #[inline(always)]
    fn notice(&self, record: &Record) {
        // Pairs with the heavy fences in `end_missed_help` and in `fence_request`, which may be signals. A reader that
        // these do not reach, or no longer, has `FENCES` set, and fences itself in `answer`. Models pay for it only where
        // it is needed.
        let helps = self.helping().is_some() && self.mode() != Mode::Symmetric;
        let is_needed = fence::has_requests() || helps;
        if is_needed && !busted::is(Variant::ExitNoLight) {
            fence::light();
        }
        if record.wants_attention() {
            self.answer(record);
        }
    }

    #[cold]
    fn answer(&self, record: &Record) {
        if record.fences() {
            // SeqCst: pairs with the fence in `end_missed_help` of a symmetric domain, and with that in `fence_request` for
            // a reader that signals do not reach.
            atomic_fence(Ordering::SeqCst);
        }
        if record.take_request() {
            self.event.notify_by_shares();
            self.tasks.wake();
        }
        self.end_own_help(record);
    }
}

/// Loads `source` and pins what it points to: until the hazard is cleared, the object is not freed.
///
/// Returns null, and a hazard slot that is clear, when `source` holds null.
///
/// A reload that finds the same address proves that the object was linked *after* the slot was set, so a
/// writer that unlinks it later sees the slot. It need not be the object of the first load: that one may have
/// been freed and its address used again, which is why the reload is the one that counts.
#[inline(always)]
pub(crate) fn protect<'r, T>(
    mode: Mode,
    source: &AtomicPtr<T>,
    hazard: impl FnOnce() -> &'r Hazard,
) -> Option<(NonNull<T>, &'r Hazard)> {
    // Relaxed: this address is not followed.
    let mut candidate = source.load(Ordering::Relaxed);
    if candidate.is_null() {
        return None;
    }
    let hazard = hazard();
    loop {
        set_hazard(hazard, candidate.cast());
        if !busted::is(Variant::ProtectNoLight) {
            mode.light();
        }
        // Acquire: pairs with the release of the writer that linked the object.
        let acquire = busted::order(Variant::ProtectReloadRelaxed, Ordering::Acquire);
        let current = if busted::is(Variant::ProtectNoReload) { candidate } else { source.load(acquire) };
        if current == candidate {
            return NonNull::new(current).map(|object| (object, hazard));
        }
        let Some(_) = NonNull::new(current) else {
            clear_hazard(hazard);
            return None;
        };
        candidate = current;
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::cell::RefCell;

    use crate::fence::Mode;
    use crate::rcu::{Domain, Reader};

    /// What a thread does with a reader at its very end, when fences by signals do not reach it any more.
    struct Late(Domain, Reader);

    impl Drop for Late {
        fn drop(&mut self) {
            assert!(crate::multicast::signals::has_left());
            assert!(self.1.record().fences(), "nobody else does it");
            assert!(self.0.reader().record().fences());
        }
    }

    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    /// At the end of each section, and of each state of a QSBR reader, before the look at requests.
    #[test]
    fn a_reader_fences_itself_from_the_moment_on_at_which_its_thread_has_left() {
        let domain = Domain::builder().fence(Mode::Signals).build().expect("nobody handles the signal");
        let thread = std::thread::spawn(move || {
            // Used first, dropped last.
            LATE.with(|late| *late.borrow_mut() = None);
            let readers: Vec<Reader> = (0..20).map(|_| domain.reader()).collect();
            assert!(readers.iter().all(|reader| !reader.record().fences()), "signals reach them");
            drop(readers);
            let reader = domain.reader();
            LATE.with(|late| *late.borrow_mut() = Some(Late(domain, reader)));
        });
        thread.join().expect("it does not panic");
    }

    /// A record is another thread's when its reader has gone.
    #[test]
    fn a_reader_that_has_gone_is_not_told_that_its_thread_leaves() {
        let domain = Domain::builder().fence(Mode::Signals).build().expect("nobody handles the signal");
        let (gone, is_gone) = std::sync::mpsc::channel();
        let (taken, is_taken) = std::sync::mpsc::channel();
        let other = domain.clone();
        let thread = std::thread::spawn(move || {
            let kept = other.reader();
            let reader = other.reader();
            let record = std::ptr::from_ref(reader.record()).addr();
            drop(reader);
            gone.send(record).expect("the test waits for it");
            is_taken.recv().expect("the test goes on");
            std::mem::forget(kept);
        });
        let record = is_gone.recv().expect("the thread runs");
        let readers: Vec<Reader> = (0..20).map(|_| domain.reader()).collect();
        let taken_over = readers.iter().find(|reader| std::ptr::from_ref(reader.record()).addr() == record);
        taken.send(()).expect("the thread waits for it");
        thread.join().expect("it does not panic");
        assert!(!taken_over.expect("records are used again").record().fences());
    }
}
