//! The wakers of the futures that wait in a domain: a queue behind a lock that no reader waits for.
//!
//! ```text
//!   set --> waiting ==all, when a reader leaves==> due --a share at a time--> woken
//! ```
//!
//! A reader that leaves its section makes all waiting wakers *due*, in constant time, and wakes a share. The next thread at the
//! lists wakes the next share: a woken future, in its next poll or when it is dropped, or any other future. So a leave
//! wakes a fixed number of wakers however many futures there are, and the others follow without another reader or
//! reclaimer. It is enough that one of the woken futures of each share is polled or dropped.
//!
//! A reader that finds the lists locked sets a bit, and goes on; the holder of the lock checks the bit when it has
//! unlocked. Futures do wait for the lock. It is held for a few instructions per waker of a share, and no user code
//! runs meanwhile: wakers are cloned before, woken and dropped after.
//!
//! A waker may poll its future in place, which comes here again. That call wakes nobody: it leaves the next share to the
//! outer call, so that the stack does not grow with the number of futures.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
// Not modelled: only one thread uses these, and its signal handlers.
use std::sync::atomic::AtomicBool as OwnBool;
use std::task::Waker;
use std::time::Duration;

use crate::busted::{self, Variant};
use crate::frames::{self, Frame, Kind};
use crate::rcu::orders;
use stillpoint_sys::panics;
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};
use stillpoint_sys::sync::{Patience, UnsafeCell};
use stillpoint_sys::work;

/// Most wakers that one call wakes.
pub(crate) const SHARE: usize = if cfg!(stillpoint_loom) { 2 } else { 8 };

/// In `word`: a thread is at the lists.
const LOCKED: u32 = 1;
/// In `word`: a reader has left, and the futures that waited then are not due yet.
const LEFT: u32 = 2;

pub(crate) struct Wakers {
    word: AtomicU32,
    lists: UnsafeCell<Lists>,
}

struct Lists {
    waiting: List,
    due: List,
    /// Increases in the child of a `fork`: nodes of earlier epochs are in no list.
    epoch: u32,
}

/// A list of nodes, which belong to places. The first node has waited longest.
struct List {
    first: *mut Node,
    last: *mut Node,
}

/// Used only by the holder of the lock. The node is in a list if it has a waker and its epoch is that of the lists; otherwise it is
/// in none.
struct Node {
    waker: Option<Waker>,
    epoch: u32,
    before: *mut Node,
    behind: *mut Node,
    token: u64,
    since: Duration,
}

/// The place of one future, which gives it back to [`Wakers::remove`]. Dropping it leaks it.
pub(crate) struct Place(NonNull<Node>);

impl Place {
    /// For a future that waits for `token` since `since`, an age of the domain.
    pub(crate) fn new(token: u64, since: Duration) -> Self {
        let node =
            Node { waker: None, epoch: 0, before: ptr::null_mut(), behind: ptr::null_mut(), token, since };
        Self(NonNull::from(Box::leak(Box::new(node))))
    }
}

// SAFETY: the lists, and the nodes in them, are used only by the holder of the lock; wakers are `Send`.
unsafe impl Send for Wakers {}
// SAFETY: only the holder of the lock uses the lists and the nodes in them; wakers are `Send`.
unsafe impl Sync for Wakers {}

impl Wakers {
    pub(crate) fn new() -> Self {
        let lists = Lists { waiting: List::new(), due: List::new(), epoch: 0 };
        Self { word: AtomicU32::new(0), lists: UnsafeCell::new(lists) }
    }

    /// Leaves a waker. It replaces the one that the place has.
    pub(crate) fn set(&self, place: &Place, waker: Waker) {
        let node = place.0;
        self.lock();
        let old = self.serve(|lists| {
            // SAFETY: the lock is held, and the node lives until `remove`.
            let old = unsafe { lists.unlink(node) };
            // SAFETY: the lock is held, the node lives until `remove`, and it is in no list now.
            unsafe { lists.push(node, waker) };
            old
        });
        drop(old);
    }

    /// Gives back the place of a future that no longer waits. If the future was woken, this passes on its share.
    pub(crate) fn remove(&self, place: Place) {
        self.lock();
        // SAFETY: the lock is held, and the node came from `Place::new`.
        let old = self.serve(|lists| unsafe { lists.unlink(place.0) });
        // SAFETY: the node came from a box in `Place::new`, is in no list any more, and the place is given up.
        drop(unsafe { Box::from_raw(place.0.as_ptr()) });
        drop(old);
    }

    /// Makes all waiting futures due, and wakes a share, whose futures look again and wake the next ones; or leaves both to the holder of
    /// the lock. Never waits.
    pub(crate) fn wake_all(&self) {
        if self.word.fetch_or(LOCKED | LEFT, orders::leave_word()) & LOCKED == 0 {
            self.serve(|_| ());
        }
    }

    fn try_lock(&self) -> bool {
        // Relaxed: the first step of `serve` acquires.
        self.word.fetch_or(LOCKED, Ordering::Relaxed) & LOCKED == 0
    }

    fn lock(&self) {
        let mut patience = Patience::default();
        while !self.try_lock() {
            patience.turn();
        }
    }

    /// Does `work` and unlocks, then wakes a share of those that are due, or leaves that to an outer call of the thread. Must be called
    /// with the lock.
    fn serve<R>(&self, work: impl FnOnce(&mut Lists) -> R) -> R {
        if let Some(outer) = Waking::of_caller(self) {
            return self.serve_within(outer, work);
        }
        let (answer, mut woken) = self.pass(work);
        while woken.wake(self) && self.try_lock() {
            ((), woken) = self.pass(|_| ());
        }
        answer
    }

    /// A pass within a wake by this thread, which goes on with the futures that are due.
    fn serve_within<R>(&self, outer: &Waking, work: impl FnOnce(&mut Lists) -> R) -> R {
        let has_left = self.word.fetch_and(!LEFT, orders::lists()) & LEFT != 0;
        let (answer, is_empty) = self.lists.with_mut(|lists| {
            // SAFETY: the lock is held.
            let lists = unsafe { &mut *lists };
            if has_left {
                lists.due.append(&mut lists.waiting);
            }
            let answer = work(lists);
            (answer, lists.due.is_empty() && lists.waiting.is_empty())
        });
        self.word.fetch_and(!LOCKED, orders::lists_left());
        // Also if only `LEFT` was set meanwhile, which the next pass finds.
        if !is_empty && !busted::is(Variant::ShareOwedLost) {
            // Relaxed: only this thread looks.
            outer.owes.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Does `work` and unlocks. Returns a share of those that are due, to be woken.
    ///
    /// After the last pass of the loop, one of these holds: no future is due and no reader has set `LEFT`; a share was woken,
    /// whose futures come here in their turn; or another thread has the lock. Each pass after the first finds `LEFT` set, and
    /// at least one waiting future, which it wakes. So there are at most [`SHARE`] + 1 passes.
    fn pass<R>(&self, work: impl FnOnce(&mut Lists) -> R) -> (R, Share) {
        let mut woken = Share::default();
        let (mut work, mut answer) = (Some(work), None);
        loop {
            let has_left = self.word.fetch_and(!LEFT, orders::lists()) & LEFT != 0;
            let is_empty = self.lists.with_mut(|lists| {
                // SAFETY: the lock is held.
                let lists = unsafe { &mut *lists };
                if has_left {
                    lists.due.append(&mut lists.waiting);
                }
                if let Some(work) = work.take() {
                    answer = Some(work(lists));
                }
                if has_left || !busted::is(Variant::ShareNotPassedOn) {
                    lists.take_due(&mut woken);
                }
                lists.due.is_empty() && lists.waiting.is_empty()
            });
            let word = self.word.fetch_and(!LOCKED, orders::lists_left());
            let is_asked = word & LEFT != 0 && !busted::is(Variant::WordLost);
            // The woken futures wake the rest. If no future waits, the next one to come finds `LEFT`.
            if !is_asked || woken.is_full() || is_empty || !self.try_lock() {
                break;
            }
        }
        (answer.expect("the first pass of the loop has done the work"), woken)
    }

    /// Since when the future that has waited longest waits for a reader in this state, if it does. A future that another
    /// reader woke meanwhile ranks behind those that were not woken.
    pub(crate) fn in_the_way_since(&self, state: u64) -> Option<Duration> {
        self.lock();
        self.serve(|lists| {
            let longest = |list: &List| {
                // SAFETY: null, or a node of the list, whose lock is held.
                unsafe { list.first.as_ref() }.filter(|node| state < node.token).map(|node| node.since)
            };
            longest(&lists.due).into_iter().chain(longest(&lists.waiting)).min()
        })
    }

    /// In the child of a `fork`: unlocks, and empties the lists. Places must still be given back.
    ///
    /// # Safety
    /// The calling thread is the only one of the process.
    pub(crate) unsafe fn reset_after_fork(&self) {
        self.lists.with_mut(|lists| {
            // SAFETY: there is no other thread. A thread of the parent may have left the lists half-changed; they are not
            // followed, since the nodes are of another epoch.
            let lists = unsafe { &mut *lists };
            (lists.waiting, lists.due) = (List::new(), List::new());
            lists.epoch = lists.epoch.wrapping_add(1);
        });
        // Relaxed: there is only one thread.
        self.word.store(0, Ordering::Relaxed);
    }
}

/// Each call needs the lock.
impl Lists {
    /// Takes a node out of its list, if it is in one. Returns its waker.
    ///
    /// # Safety
    /// The node is alive.
    unsafe fn unlink(&mut self, mut node: NonNull<Node>) -> Option<Waker> {
        // SAFETY: the node is alive, and no other thread uses it without the lock.
        let node = unsafe { node.as_mut() };
        let waker = node.waker.take()?;
        if node.epoch == self.epoch {
            let own = ptr::from_mut(node);
            let list = if self.due.has_at_an_end(own) { &mut self.due } else { &mut self.waiting };
            // SAFETY: null, or the neighbour in the same list: nodes leave their list before they are freed.
            match unsafe { node.before.as_mut() } {
                Some(before) => before.behind = node.behind,
                None => list.first = node.behind,
            }
            // SAFETY: null, or the neighbour in the same list: nodes leave their list before they are freed.
            match unsafe { node.behind.as_mut() } {
                Some(behind) => behind.before = node.before,
                None => list.last = node.before,
            }
        }
        Some(waker)
    }

    /// Appends a node to the waiting ones.
    ///
    /// # Safety
    /// The node is alive and in no list, and it leaves this list before it is freed.
    unsafe fn push(&mut self, mut node: NonNull<Node>, waker: Waker) {
        let own = node.as_ptr();
        // SAFETY: the node is alive, by the caller's promise.
        let node = unsafe { node.as_mut() };
        (node.waker, node.epoch) = (Some(waker), self.epoch);
        (node.before, node.behind) = (ptr::null_mut(), ptr::null_mut());
        self.waiting.append(&mut List { first: own, last: own });
    }

    fn take_due(&mut self, woken: &mut Share) {
        while !woken.is_full() {
            let Some(first) = NonNull::new(self.due.first) else { return };
            work::step();
            // SAFETY: nodes in a list are alive.
            let waker = unsafe { self.unlink(first) };
            woken.add(waker.expect("a node in a list has a waker"));
        }
    }
}

impl List {
    fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    fn has_at_an_end(&self, node: *mut Node) -> bool {
        ptr::eq(self.first, node) || ptr::eq(self.last, node)
    }

    /// Appends all nodes of `other` to this list, in constant time.
    fn append(&mut self, other: &mut Self) {
        let other = std::mem::replace(other, Self::new());
        if other.is_empty() {
            return;
        }
        // SAFETY: null, or a node of this list; nodes in a list are alive.
        match unsafe { self.last.as_mut() } {
            Some(last) => {
                last.behind = other.first;
                // SAFETY: null, or a node of the other list; nodes in a list are alive.
                unsafe { (*other.first).before = self.last };
            }
            None => self.first = other.first,
        }
        self.last = other.last;
    }
}

/// Wakers that were taken from the lists.
#[derive(Default)]
struct Share {
    wakers: [Option<Waker>; SHARE],
    number: usize,
}

impl Share {
    fn is_full(&self) -> bool {
        self.number == SHARE
    }

    fn add(&mut self, waker: Waker) {
        self.wakers[self.number] = Some(waker);
        self.number += 1;
    }

    /// Wakes them all, even if one panics. A panic goes no further: it does not concern the reader that
    /// calls this. A thread of C is not cancelled here either: that would unwind through Rust. Returns whether one of them came to
    /// `wakers` in its wake, and left a share to the caller.
    fn wake(self, wakers: &Wakers) -> bool {
        if self.number == 0 {
            return false;
        }
        let waking = Waking { frame: Frame::new(Kind::Waking), wakers, owes: OwnBool::new(false) };
        waking.frame.enter(&waking);
        #[cfg(all(target_os = "linux", not(any(miri, stillpoint_loom))))]
        let _whole = stillpoint_sys::linux::Uncancelled::new();
        for waker in self.wakers.into_iter().flatten() {
            catch_unwind(AssertUnwindSafe(|| waker.wake())).unwrap_or_else(panics::discard);
        }
        // From here on, a signal handler wakes itself.
        waking.frame.leave();
        // Relaxed: as in `serve_within`.
        waking.owes.load(Ordering::Relaxed)
    }
}

/// A call further up the stack of this thread that wakes a share.
#[repr(C)]
struct Waking {
    frame: Frame,
    /// Only compared.
    wakers: *const Wakers,
    /// Whether a call within it has left a share to it.
    owes: OwnBool,
}

impl Waking {
    /// The call of this thread that wakes futures of `wakers`, if there is one. It is valid until it returns.
    fn of_caller<'w>(wakers: *const Wakers) -> Option<&'w Self> {
        // SAFETY: a frame of this kind begins a `Waking` further up the stack, which takes itself out before it returns.
        let mut waking = frames::of(Kind::Waking).map(|found| unsafe { &*found.cast::<Self>() });
        waking.find(|waking| ptr::eq(waking.wakers, wakers))
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use super::*;

    /// The numbers of the wakers that were woken, in order.
    type Woken = Arc<Mutex<Vec<usize>>>;

    struct Bell(Woken, usize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.lock().expect("no thread panics while it holds the lock").push(self.1);
        }
    }

    #[derive(Default)]
    struct Scene {
        woken: Woken,
        places: Vec<Option<Place>>,
    }

    impl Scene {
        /// Adds a future that waits for the token with its own number.
        fn wait(&mut self, wakers: &Wakers) {
            let number = self.places.len();
            let place = Place::new(number as u64 + 1, Duration::from_secs(number as u64));
            wakers.set(&place, Waker::from(Arc::new(Bell(Arc::clone(&self.woken), number))));
            self.places.push(Some(place));
        }

        fn leave(&mut self, wakers: &Wakers, number: usize) {
            wakers.remove(self.places[number].take().expect("it has not left"));
        }

        fn woken(&self) -> Vec<usize> {
            std::mem::take(&mut *self.woken.lock().expect("no thread panics while it holds the lock"))
        }

        fn end(mut self, wakers: &Wakers) {
            (0..self.places.len())
                .filter(|&number| self.places[number].is_some())
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|number| self.leave(wakers, number));
        }
    }

    /// A due future leaves the list of due ones from any place, also from either end.
    #[test]
    fn whoever_is_due_leaves_from_any_place() {
        for due in 1..4 {
            for leaves in SHARE..SHARE + due {
                let (wakers, mut scene) = (Wakers::new(), Scene::default());
                (0..SHARE + due).for_each(|_| scene.wait(&wakers));
                wakers.wake_all();
                assert!(scene.woken().into_iter().eq(0..SHARE));
                // A future that waits behind the due ones. Its call passes on the next share, after it has removed the
                // one that must not be woken any more.
                wakers.lock();
                let place = scene.places[leaves].as_ref().expect("it has not left").0;
                let late = Place::new(9, Duration::ZERO);
                // SAFETY: the lock is held, and the nodes live until they are removed.
                let old = wakers.serve(|lists| unsafe {
                    lists.push(late.0, Waker::from(Arc::new(Bell(Arc::clone(&scene.woken), 90))));
                    lists.unlink(place)
                });
                assert!(old.is_some());
                let others = (SHARE..SHARE + due).filter(|&number| number != leaves);
                assert!(scene.woken().into_iter().eq(others), "{leaves} of {due}");
                scene.wait(&wakers);
                assert_eq!(scene.woken(), [], "no reader has left");
                wakers.wake_all();
                assert_eq!(scene.woken(), [90, SHARE + due]);
                wakers.remove(late);
                scene.end(&wakers);
            }
        }
    }

    /// A waker may reach a point of cancellation, on a thread of C whose cancellation is pending. If that took effect there, the process would
    /// end.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn no_thread_is_cancelled_within_a_waker() {
        extern "C-unwind" {
            fn pthread_cancel(thread: libc::pthread_t) -> std::ffi::c_int;
            fn pthread_testcancel();
        }

        struct Tests(OwnBool);

        impl Wake for Tests {
            fn wake(self: Arc<Self>) {
                // SAFETY: no preconditions.
                unsafe { pthread_testcancel() };
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let tests = Arc::new(Tests(OwnBool::new(false)));
        let waker = Waker::from(Arc::clone(&tests));
        let is_cancelled = move || {
            let (wakers, place) = (Wakers::new(), Place::new(1, Duration::ZERO));
            wakers.set(&place, waker);
            // SAFETY: the calling thread is alive.
            assert_eq!(unsafe { pthread_cancel(libc::pthread_self()) }, 0);
            wakers.wake_all();
            // It stays pending: the end of this thread is Rust, too.
            std::mem::forget(stillpoint_sys::linux::Uncancelled::new());
            wakers.remove(place);
        };
        std::thread::spawn(is_cancelled).join().expect("the thread returns");
        assert!(tests.0.load(Ordering::Relaxed));
    }

    /// The holder of the lock finds the bit when it unlocks.
    #[test]
    fn a_reader_that_finds_the_lists_locked_leaves_word() {
        for waiting in [0, 1, SHARE, SHARE + 1] {
            let (wakers, mut scene) = (Wakers::new(), Scene::default());
            (0..waiting).for_each(|_| scene.wait(&wakers));
            wakers.lock();
            wakers.serve(|_| {
                wakers.wake_all();
                assert_eq!(scene.woken(), [], "another thread has the lists");
            });
            assert!(scene.woken().into_iter().eq(0..waiting.min(SHARE)), "of {waiting}");
            scene.wait(&wakers);
            assert!(scene.woken().into_iter().eq(SHARE..waiting), "the next share of {waiting}");
            scene.end(&wakers);
        }
    }

    /// This holds also while the futures that have waited longest are due and not woken yet.
    #[test]
    fn the_one_that_waits_longest_is_known() {
        let (wakers, mut scene) = (Wakers::new(), Scene::default());
        assert_eq!(wakers.in_the_way_since(0), None);
        (0..3 * SHARE).for_each(|_| scene.wait(&wakers));
        assert_eq!(wakers.in_the_way_since(0), Some(Duration::ZERO));
        assert_eq!(wakers.in_the_way_since(1), None, "the first one does not wait for it");
        wakers.wake_all();
        scene.wait(&wakers);
        // The call passes on a share after it has looked.
        let next = Duration::from_secs(2 * SHARE as u64);
        assert_eq!(wakers.in_the_way_since(0), Some(next));
        let late = Duration::from_secs(3 * SHARE as u64);
        assert_eq!(wakers.in_the_way_since(0), Some(late));
        assert_eq!(scene.woken().len(), 3 * SHARE);
        scene.end(&wakers);
    }

    /// Nodes that were in a list of the parent are in no list of the child until their futures wait again.
    #[test]
    fn those_who_waited_in_the_parent_disturb_nobody_in_the_child() {
        for again in 0..3 {
            let (wakers, mut scene) = (Wakers::new(), Scene::default());
            (0..3).for_each(|_| scene.wait(&wakers));
            // SAFETY: no other thread uses them.
            unsafe { wakers.reset_after_fork() };
            assert_eq!(wakers.in_the_way_since(0), None);
            scene.wait(&wakers);
            let place = scene.places[again].as_ref().expect("it has not left");
            wakers.set(place, Waker::from(Arc::new(Bell(Arc::clone(&scene.woken), again))));
            (0..3).filter(|&number| number != again).for_each(|number| scene.leave(&wakers, number));
            wakers.wake_all();
            assert_eq!(scene.woken(), [3, again]);
            scene.end(&wakers);
        }
    }
}
