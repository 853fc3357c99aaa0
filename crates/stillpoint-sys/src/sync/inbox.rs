//! An inbox: a list to which any thread posts messages, and which its owner takes as a whole.
//!
//! A post is one compare-and-exchange of a whole chain, so a thread that is preempted while it posts holds nobody up, and no post is
//! refused for want of room: the messages bring their own.
//!
//! Whoever takes a chain comes after everything that was done before each of its posts: a post releases, the taking acquires, and the
//! posts between are read-modify-writes, which continue what the first of them began. Whoever is refused comes after everything that the
//! owner did before it closed the inbox.

use std::ptr::{self, NonNull};

use super::atomic::{fence, AtomicPtr, Ordering};
use crate::busted::unless;
use busted::Variant;

/// In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=inbox:NAME` chooses one.
mod busted {
    crate::variants! {
        for models, "inbox";
        PostRelaxed = "post-relaxed": "A chain is posted by a relaxed operation.",
        PostOver = "post-over": "A post does not find what another thread has posted since it looked.",
        PostLate = "post-late": "A chain is posted although the inbox is closed.",
        TakeRelaxed = "take-relaxed": "The owner takes the messages by a relaxed operation.",
        TakeByStore = "take-by-store": "The owner empties the list after it has looked at it.",
        CloseRelaxed = "close-relaxed": "The owner acquires nothing when it takes the last messages.",
        CloseUnreleased = "close-unreleased": "The owner publishes nothing when it closes the inbox.",
        RefusedRelaxed = "refused-relaxed": "Whoever is refused acquires nothing.",
    }
}

/// A message, which can be linked to another.
///
/// # Safety
/// The link is always the same, and nothing else uses it.
pub unsafe trait Message: Sized {
    /// Where an inbox keeps the message that was posted before this one.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// An inbox, which begins closed. See the module.
pub struct Inbox<M> {
    /// The newest message; null; or [`closed`].
    newest: AtomicPtr<M>,
}

/// In place of a message: the inbox is closed.
fn closed<M>() -> *mut M {
    ptr::without_provenance_mut(1)
}

/// The messages that were taken from an inbox, the oldest first.
pub struct Messages<M>(*mut M);

impl<M: Message> Inbox<M> {
    /// A closed inbox.
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(closed()) }
    }

    /// Opens it. Called by its owner.
    pub fn open(&self) {
        // Relaxed: whoever finds it open learns nothing else from that.
        self.newest.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Posts a chain: `newest`, its links, and at their end `oldest`, whose link is set here. False if the inbox is closed. Lock-free:
    /// each further attempt means that another thread has posted, or that the owner has taken.
    ///
    /// # Safety
    /// The messages stay valid until the owner has taken them and is done with them, and are in no other inbox.
    #[inline]
    pub unsafe fn post(&self, newest: NonNull<M>, oldest: NonNull<M>) -> bool {
        // SAFETY: the message is valid, and nobody else uses its link until it is posted, by the caller's promise.
        let link = unsafe { oldest.as_ref() }.link();
        // Release: pairs with the acquires in `take` and `close`.
        let order = unless(busted::is(Variant::PostRelaxed), Ordering::Release);
        // Relaxed, here and on failure: whoever posts reads nothing of what others have posted. A refusal fences.
        let mut before = self.newest.load(Ordering::Relaxed);
        loop {
            if before == closed() {
                if !busted::is(Variant::PostLate) {
                    // Acquire: with the load, pairs with the release in `close`.
                    if !busted::is(Variant::RefusedRelaxed) {
                        fence(Ordering::Acquire);
                    }
                    return false;
                }
                before = ptr::null_mut();
            }
            // Relaxed: published by the exchange.
            link.store(before, Ordering::Relaxed);
            if busted::is(Variant::PostOver) || busted::is(Variant::PostLate) {
                self.newest.store(newest.as_ptr(), Ordering::Release);
                return true;
            }
            match self.newest.compare_exchange_weak(before, newest.as_ptr(), order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
    }

    /// Whether nothing was posted since the last taking. A hint.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint. Whoever uses the messages takes them.
        let newest = self.newest.load(Ordering::Relaxed);
        newest.is_null() || newest == closed()
    }

    /// Takes all messages. Called by the owner. Wait-free; its cost is that of the messages, which are turned round.
    #[inline]
    pub fn take(&self) -> Messages<M> {
        if self.is_empty() {
            return Messages(ptr::null_mut());
        }
        if busted::is(Variant::TakeByStore) {
            let newest = self.newest.load(Ordering::Acquire);
            self.newest.store(ptr::null_mut(), Ordering::Relaxed);
            return Messages::reversed(newest);
        }
        // Acquire: pairs with the release in `post`.
        let order = unless(busted::is(Variant::TakeRelaxed), Ordering::Acquire);
        Messages::reversed(self.newest.swap(ptr::null_mut(), order))
    }

    /// Takes the last messages, and closes the inbox: later posts are refused. Called by the owner.
    pub fn close(&self) -> Messages<M> {
        // AcqRel: acquires what `post` has released, and releases what the owner did to those who are refused.
        let order = match () {
            () if busted::is(Variant::CloseRelaxed) => Ordering::Release,
            () if busted::is(Variant::CloseUnreleased) => Ordering::Acquire,
            () => Ordering::AcqRel,
        };
        Messages::reversed(self.newest.swap(closed(), order))
    }
}

impl<M: Message> Default for Inbox<M> {
    fn default() -> Self {
        Self::new()
    }
}

crate::debug!([M: Message] |this| Inbox<M> { is_empty: this.is_empty(), .. });

impl<M: Message> Messages<M> {
    fn reversed(mut newest: *mut M) -> Self {
        let mut reversed = ptr::null_mut();
        while !newest.is_null() && newest != closed() {
            // SAFETY: the message was posted, and whoever posted it keeps it valid.
            let link = unsafe { &*newest }.link();
            // Relaxed, both: the taking has acquired the chain, which is this thread's now.
            let before = link.load(Ordering::Relaxed);
            link.store(reversed, Ordering::Relaxed);
            (reversed, newest) = (newest, before);
        }
        Self(reversed)
    }
}

/// From the oldest to the newest. A message belongs to the owner from then on.
impl<M: Message> Iterator for Messages<M> {
    type Item = NonNull<M>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<M>> {
        let message = NonNull::new(self.0)?;
        // SAFETY: the message was taken and not handed out. Relaxed: the chain is this thread's.
        self.0 = unsafe { message.as_ref() }.link().load(Ordering::Relaxed);
        Some(message)
    }
}

#[cfg(test)]
struct Numbered {
    link: AtomicPtr<Numbered>,
    number: super::UnsafeCell<u32>,
}

// SAFETY: the link is a field, which only the inbox uses.
#[cfg(test)]
unsafe impl Message for Numbered {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

#[cfg(test)]
impl Numbered {
    fn new(number: u32) -> NonNull<Self> {
        let message = Self { link: AtomicPtr::new(ptr::null_mut()), number: super::UnsafeCell::new(0) };
        // SAFETY: nobody else has it. A model watches writes, and not what a cell is made with.
        message.number.with_mut(|place| unsafe { *place = number });
        NonNull::from(Box::leak(Box::new(message)))
    }

    /// Reads the number. Frees the message, except in a model, where a broken variant may hand it out twice.
    fn read(message: NonNull<Self>) -> u32 {
        // SAFETY: the message came from `new`, and was taken: it belongs to the caller.
        let number = unsafe { message.as_ref() }.number.with(|number| unsafe { *number });
        #[cfg(not(stillpoint_loom))]
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(message.as_ptr()) });
        number
    }

    /// Posts a new message with this number. Frees it if it is refused.
    fn post(inbox: &Inbox<Self>, number: u32) -> bool {
        let message = Self::new(number);
        // SAFETY: the message stays valid until it is read.
        let is_posted = unsafe { inbox.post(message, message) };
        if !is_posted {
            Self::read(message);
        }
        is_posted
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_the_order_of_their_posts() {
        let inbox = Inbox::new();
        assert!(inbox.is_empty() && !Numbered::post(&inbox, 0), "it begins closed");
        inbox.open();
        assert!(inbox.is_empty() && inbox.take().next().is_none());
        assert!(Numbered::post(&inbox, 1) && Numbered::post(&inbox, 2) && !inbox.is_empty());
        // A chain: the newest first.
        let chain = [3, 4, 5].map(Numbered::new);
        for pair in chain.windows(2) {
            // SAFETY: the message is valid.
            unsafe { pair[1].as_ref() }.link().store(pair[0].as_ptr(), Ordering::Relaxed);
        }
        // SAFETY: the messages stay valid until they are read.
        assert!(unsafe { inbox.post(chain[2], chain[0]) });
        assert!(Numbered::post(&inbox, 6));
        let taken: Vec<u32> = inbox.take().map(Numbered::read).collect();
        assert_eq!(taken, [1, 2, 3, 4, 5, 6]);
        assert!(inbox.is_empty() && Numbered::post(&inbox, 7));
        assert_eq!(inbox.close().map(Numbered::read).collect::<Vec<_>>(), [7]);
        assert!(inbox.is_empty() && !Numbered::post(&inbox, 8) && inbox.close().next().is_none());
        assert!(inbox.take().next().is_none(), "it stays closed");
        assert!(!Numbered::post(&inbox, 9));
        inbox.open();
        assert!(Numbered::post(&inbox, 10));
        assert_eq!(inbox.take().map(Numbered::read).collect::<Vec<_>>(), [10]);
    }
}

#[cfg(all(test, stillpoint_loom))]
mod models {
    use super::*;
    use crate::sync::atomic::AtomicBool;
    use crate::sync::Arc;
    use loom::thread;

    fn inbox() -> Arc<Inbox<Numbered>> {
        let inbox = Arc::new(Inbox::new());
        inbox.open();
        inbox
    }

    /// Two threads post, the second one twice; the owner takes until it has everything, and joins nobody before.
    #[test]
    fn each_message_comes_once_and_in_the_order_of_its_thread() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let inbox = inbox();
            let threads = [&[1][..], &[2, 3]].map(|numbers| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    numbers.iter().for_each(|number| assert!(Numbered::post(&inbox, *number)))
                })
            });
            let mut taken = Vec::new();
            // A lost message would be waited for without end.
            for _ in 0..4 {
                taken.extend(inbox.take().map(Numbered::read));
                if taken.len() == 3 {
                    break;
                }
                thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            taken.extend(inbox.take().map(Numbered::read));
            let place = |number| taken.iter().position(|taken| *taken == number);
            assert!(taken.len() == 3 && place(1).is_some() && place(2) < place(3), "{taken:?} were taken");
        });
        crate::busted::assert_reached();
    }

    /// Nobody is joined before the messages are read.
    #[test]
    fn whoever_closes_has_all_that_was_posted_and_nothing_is_posted_later() {
        loom::model(|| {
            let inbox = inbox();
            let threads = [1, 2].map(|number| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || u32::from(Numbered::post(&inbox, number)))
            });
            let taken = inbox.close().map(Numbered::read).count() as u32;
            let posted: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(taken, posted, "as many were taken as posted");
            assert!(inbox.is_empty());
        });
        crate::busted::assert_reached();
    }

    /// An owner gives away what it has before it closes its inbox.
    #[test]
    fn whoever_is_refused_sees_what_the_owner_did_before() {
        loom::model(|| {
            let (inbox, given_away) = (inbox(), Arc::new(AtomicBool::new(false)));
            let poster = {
                let (inbox, given_away) = (Arc::clone(&inbox), Arc::clone(&given_away));
                thread::spawn(move || {
                    let is_posted = Numbered::post(&inbox, 1);
                    assert!(is_posted || given_away.load(Ordering::Relaxed), "a refusal came too early");
                })
            };
            given_away.store(true, Ordering::Relaxed);
            inbox.close().for_each(|message| _ = Numbered::read(message));
            poster.join().unwrap();
        });
        crate::busted::assert_reached();
    }

    #[cfg(stillpoint_busted)]
    #[test]
    fn every_variant_is_caught_by_its_model() {
        let model = |variant| match variant {
            Variant::PostLate | Variant::CloseRelaxed => {
                "whoever_closes_has_all_that_was_posted_and_nothing_is_posted_later"
            }
            Variant::CloseUnreleased | Variant::RefusedRelaxed => {
                "whoever_is_refused_sees_what_the_owner_did_before"
            }
            _ => "each_message_comes_once_and_in_the_order_of_its_thread",
        };
        let signs = vec![
            "Causality violation",
            "were taken",
            "as many were taken as posted",
            "a refusal came too early",
        ];
        let all = Variant::ALL.iter().map(|&variant| (variant, model(variant), signs.clone()));
        busted::assert_caught("sync::inbox::models", all);
    }
}
