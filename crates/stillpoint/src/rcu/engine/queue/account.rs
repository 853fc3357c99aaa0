//! An account: how much waits where one limit holds, in a whole domain or with the retire handles of a background reclaimer.
//!
//! An object is counted once, from the moment at which it is retired, or left to the domain, until the look that has run its destructor
//! ends. It keeps its room when it moves: from a stack to a retire list, from one list to another. An orphan takes up room in the domain.
//!
//! Room is *reserved* by a compare-and-swap that never exceeds the limit, even if many threads retire at the same
//! time. What cannot be refused is *charged*, beyond the limit if need be, and counted.
//!
//! A retire list draws room for [`REFILL`] objects at a time, and keeps what it has not used ([`RoomCache`]) for the next
//! ones. So most objects cost no read-modify-write on the cache line that all retirers share. If the limit is near, the list
//! draws room for one object, and keeps none. A list in which nothing waits keeps none either, nor does a list that takes in
//! objects for which room was taken up before. So a retirement is refused for room that another list keeps only if objects wait
//! in that list.
//!
//! A domain without limits has no account, and pays nothing. With a limit, each poll that frees costs a fence, to wake
//! threads that wait for room.

use crate::busted::{self, Variant};
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicUsize, Ordering};

// Not modelled: a statistic, and a hint.
use std::sync::atomic::{AtomicU64, AtomicUsize as PlainUsize};

use crate::rcu::engine::Core;

/// Objects for which a retire list draws room at a time.
const REFILL: usize = 64;
/// The limit is near if there is no room for this many refills.
const NEAR: usize = 16;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
}

impl Limits {
    pub(crate) const NONE: Self = Self { objects: usize::MAX, bytes: usize::MAX };

    /// Whether there is no room for one more object of this size.
    pub(crate) fn is_full_with(&self, objects: usize, taken: usize, bytes: usize) -> bool {
        self.objects <= objects || self.bytes < taken.saturating_add(bytes)
    }
}

/// The objects, and the bytes, that take up room.
pub(crate) struct Account {
    pub(crate) objects: Count,
    pub(crate) bytes: Count,
    /// Objects that were charged beyond a limit.
    beyond: AtomicU64,
    /// The size of the largest object that was refused.
    refused: PlainUsize,
}

impl Account {
    /// `None` without a limit.
    pub(crate) fn new(limits: Limits) -> Option<Self> {
        let is_limited = limits.objects != Count::UNLIMITED || limits.bytes != Count::UNLIMITED;
        is_limited.then(|| Self::within(limits))
    }

    /// As [`new`](Account::new), but counts objects also if their number has no limit.
    pub(crate) fn counting(limits: Limits) -> Self {
        Self::within(Limits { objects: limits.objects.min(Count::UNLIMITED - 1), ..limits })
    }

    fn within(limits: Limits) -> Self {
        Self {
            objects: Count::new(limits.objects),
            bytes: Count::new(limits.bytes),
            beyond: AtomicU64::new(0),
            refused: PlainUsize::new(0),
        }
    }

    /// Takes up room for one object, unless that would exceed a limit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = self.draw(1, bytes);
        if !fits {
            // Relaxed: a hint.
            self.refused.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        fits
    }

    /// Takes up room for `objects` objects with `bytes` bytes in all, unless that would exceed a limit.
    ///
    /// If there are both limits, an attempt that fails for its bytes takes up the objects' room briefly, and another
    /// attempt may fail because of that.
    fn draw(&self, objects: usize, bytes: usize) -> bool {
        if !self.objects.reserve(objects) {
            return false;
        }
        let fits = self.bytes.reserve(bytes);
        if !fits {
            self.objects.give_back(objects);
        }
        fits
    }

    /// Whether there is no room for many refills of objects of this size, or of the largest size that was ever refused.
    fn is_near(&self, bytes: usize) -> bool {
        // Relaxed: a hint.
        let bytes = bytes.max(self.refused.load(std::sync::atomic::Ordering::Relaxed));
        self.objects.is_near(NEAR * REFILL) || self.bytes.is_near(bytes.saturating_mul(NEAR * REFILL))
    }

    /// Takes up room for one object that cannot be refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge(&self, bytes: usize) {
        let objects_fit = self.objects.charge(1);
        let bytes_fit = self.bytes.charge(bytes);
        if !(objects_fit && bytes_fit) {
            // Relaxed: a statistic.
            self.beyond.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Gives back the room of an object that was freed.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.give_back_all(1, bytes);
    }

    /// Gives back the room of objects that were freed, or moved to where they are not counted here.
    pub(crate) fn give_back_all(&self, objects: usize, bytes: usize) {
        self.objects.give_back(objects);
        self.bytes.give_back(bytes);
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { objects: self.objects.limit, bytes: self.bytes.limit }
    }

    /// Whether there is room for one object of this size.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.objects.fits(1) && self.bytes.fits(bytes)
    }

    /// Number of objects that were charged beyond a limit, since the domain was made.
    pub(crate) fn beyond(&self) -> u64 {
        // Relaxed: a statistic.
        self.beyond.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A number with a limit. Without a limit, nothing is counted.
pub(crate) struct Count {
    limit: usize,
    taken: AtomicUsize,
}

impl Count {
    const UNLIMITED: usize = usize::MAX;

    fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0) }
    }

    fn is_limited(&self) -> bool {
        self.limit != Self::UNLIMITED
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.is_limited().then_some(self.limit)
    }

    /// The amount taken up; `None` if it is not counted.
    pub(crate) fn taken(&self) -> Option<usize> {
        self.is_limited().then(|| self.taken.load(orders::taken()))
    }

    fn reserve(&self, amount: usize) -> bool {
        if !self.is_limited() {
            return true;
        }
        let fits = |taken: usize| taken.checked_add(amount).filter(|&total| total <= self.limit);
        if busted::is(Variant::RoomByLoad) {
            // Relaxed: this variant is broken in any case.
            let total = fits(self.taken.load(Ordering::Relaxed));
            total.inspect(|&total| self.taken.store(total, Ordering::Relaxed));
            return total.is_some();
        }
        // Relaxed on failure: a caller that is refused relies on nothing.
        self.taken.fetch_update(orders::reserve(), Ordering::Relaxed, fits).is_ok()
    }

    /// Whether a reservation of this amount would succeed.
    fn fits(&self, amount: usize) -> bool {
        // Relaxed: ordered by the caller.
        let taken = self.taken.load(Ordering::Relaxed);
        !self.is_limited() || taken.checked_add(amount).is_some_and(|total| total <= self.limit)
    }

    /// Whether there is no more room than `amount`.
    fn is_near(&self, amount: usize) -> bool {
        // Relaxed: a hint.
        self.is_limited() && self.limit.saturating_sub(self.taken.load(Ordering::Relaxed)) <= amount
    }

    /// Takes up room without regard to the limit. Returns whether the limit still holds.
    fn charge(&self, amount: usize) -> bool {
        // Relaxed: the caller cannot be refused, so it relies on no room that others gave back. As a read-modify-write, this
        // continues the release sequence of `give_back`.
        !self.is_limited()
            || self.taken.fetch_add(amount, Ordering::Relaxed).saturating_add(amount) <= self.limit
    }

    fn give_back(&self, amount: usize) {
        if self.is_limited() {
            self.taken.fetch_sub(amount, orders::give_back());
        }
    }
}

/// Room that a retire list has drawn and that no object takes up.
#[derive(Default)]
pub(crate) struct RoomCache {
    objects: usize,
    bytes: usize,
}

impl RoomCache {
    /// Uses room for one object, if there is enough.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.objects > 0 && self.bytes >= bytes;
        if fits {
            self.objects -= 1;
            self.bytes -= bytes;
        }
        fits
    }

    /// Takes up room for one object: from this cache, or from the account, in a refill if there is much room.
    pub(crate) fn reserve(&mut self, account: &Account, bytes: usize) -> bool {
        if self.take(bytes) {
            return true;
        }
        self.give_back(account);
        let refill = bytes.saturating_mul(REFILL);
        if !account.is_near(bytes) && account.draw(REFILL, refill) {
            *self = Self { objects: REFILL - 1, bytes: refill - bytes };
            return true;
        }
        account.reserve(bytes)
    }

    /// Takes in the room of a freed object: keeps it for the next ones, or gives it back.
    pub(crate) fn add(&mut self, account: &Account, bytes: usize) {
        self.objects += 1;
        self.bytes += bytes;
        if self.objects >= 2 * REFILL || account.is_near(bytes) {
            self.give_back(account);
        }
    }

    /// Called after a look at what is ready. Gives the room back if the owner is `idle`, or if the limit is near. Returns whether
    /// any room was given back.
    pub(crate) fn trim(&mut self, account: &Account, idle: bool) -> bool {
        // Room for bytes may be left when that for objects is used up.
        let is_too_much = idle || account.is_near(self.bytes.div_ceil(self.objects.max(1)));
        is_too_much && self.give_back(account)
    }

    /// Gives back all room. Returns whether there was any.
    pub(crate) fn give_back(&mut self, account: &Account) -> bool {
        let Self { objects, bytes } = std::mem::take(self);
        let is_some = objects > 0 || bytes > 0;
        if is_some {
            account.give_back_all(objects, bytes);
        }
        is_some
    }
}

impl Core {
    /// The limits on what may wait in the domain, if it has any.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_ref().map(|account| &***account)
    }

    /// The size of the largest object for which there can be room in the domain and where this is the limit.
    pub(crate) fn largest(&self, limit: usize) -> usize {
        limit.min(self.account().map_or(usize::MAX, |account| account.limits().bytes))
    }

    /// Takes up room for one object, unless that would exceed a limit of the domain.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        self.account().is_none_or(|account| account.reserve(bytes))
    }

    /// Takes up room for one object that cannot be refused.
    #[inline]
    pub(crate) fn charge(&self, bytes: usize) {
        if let Some(account) = self.account() {
            account.charge(bytes);
        }
    }

    /// Gives back the room of an object that was freed.
    pub(crate) fn give_room_back(&self, bytes: usize) {
        if let Some(account) = self.account() {
            account.give_back(bytes);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn account(objects: usize, bytes: usize) -> Account {
        Account::new(Limits { objects, bytes }).expect("there is a limit")
    }

    #[test]
    fn without_a_limit_there_is_nothing_to_count() {
        assert!(Account::new(Limits { objects: usize::MAX, bytes: usize::MAX }).is_none());
        let account = account(1, usize::MAX);
        assert!(account.reserve(usize::MAX));
        assert_eq!((account.objects.taken(), account.bytes.taken()), (Some(1), None));
    }

    #[test]
    fn an_attempt_that_fails_takes_up_nothing() {
        let account = account(2, 10);
        assert!(account.reserve(6) && !account.reserve(5) && !account.reserve(usize::MAX));
        assert_eq!((account.objects.taken(), account.bytes.taken()), (Some(1), Some(6)));
        assert!(account.reserve(4) && !account.reserve(0));
        assert_eq!((account.objects.taken(), account.bytes.taken()), (Some(2), Some(10)));
    }

    #[test]
    fn an_account_is_full_with_what_leaves_no_room_for_one_more() {
        let account = account(2, 10);
        assert!(!account.limits().is_full_with(1, 6, 4));
        assert!(
            account.limits().is_full_with(2, 0, 0)
                && account.limits().is_full_with(0, 6, 5)
                && account.limits().is_full_with(1, usize::MAX, 1)
        );
    }

    #[test]
    fn a_limit_is_near_if_many_refills_of_the_largest_refused_size_do_not_fit() {
        for (objects, is_near) in [(NEAR * REFILL + 1, false), (NEAR * REFILL, true)] {
            assert_eq!(account(objects, usize::MAX).is_near(8), is_near, "{objects}");
        }
        let account = account(usize::MAX, 100 * NEAR * REFILL);
        assert!(account.reserve(200) && !account.is_near(8), "it was not refused");
        assert!(!account.reserve(usize::MAX) && account.is_near(8));
    }

    #[test]
    fn room_is_drawn_in_refills_and_one_by_one_near_the_limit() {
        let account = account(NEAR * REFILL + 10, usize::MAX);
        let mut cache = RoomCache::default();
        assert!(cache.reserve(&account, 8));
        assert_eq!(account.objects.taken(), Some(REFILL), "a refill");
        (1..REFILL).for_each(|_| assert!(cache.reserve(&account, 8)));
        assert_eq!(account.objects.taken(), Some(REFILL), "it is used up first");
        let left = NEAR * REFILL + 10 - REFILL;
        (0..left).for_each(|used| {
            assert!(cache.reserve(&account, 8));
            assert_eq!(account.objects.taken(), Some(REFILL + used + 1), "one by one");
        });
        assert!(!cache.reserve(&account, 8));
        cache.add(&account, 8);
        assert_eq!(account.objects.taken(), Some(NEAR * REFILL + 9), "given back at once");
    }

    #[test]
    fn objects_of_any_size_take_up_and_give_back_what_they_have() {
        let account = account(1 << 20, 1 << 24);
        let mut cache = RoomCache::default();
        let taken = |account: &Account| (account.objects.taken(), account.bytes.taken());
        assert!(cache.reserve(&account, 8) && cache.reserve(&account, 100));
        assert_eq!(taken(&account), (Some(REFILL), Some(8 * REFILL)), "the larger one fits into the refill");
        assert!(cache.reserve(&account, 1000), "the refill has not enough, and goes back");
        assert_eq!(taken(&account), (Some(REFILL + 2), Some(1000 * REFILL + 108)));
        [8, 100, 1000].into_iter().for_each(|bytes| cache.add(&account, bytes));
        assert_eq!(taken(&account), (Some(REFILL + 2), Some(1000 * REFILL + 108)), "it is kept");
        cache.give_back(&account);
        assert_eq!(taken(&account), (Some(0), Some(0)));
        assert!((0..2 * REFILL).all(|_| account.reserve(8)));
        (0..2 * REFILL).for_each(|_| cache.add(&account, 8));
        assert_eq!(taken(&account), (Some(0), Some(0)), "two refills are not kept");
    }

    #[test]
    fn what_smaller_objects_leave_of_a_refill_goes_back() {
        let account = account(1 << 20, 1 << 24);
        let mut cache = RoomCache::default();
        assert!(cache.reserve(&account, 100) && (1..REFILL).all(|_| cache.reserve(&account, 8)));
        assert_eq!(account.bytes.taken(), Some(100 * REFILL));
        assert!(cache.give_back(&account) && !cache.give_back(&account));
        let taken = (account.objects.taken(), account.bytes.taken());
        assert_eq!(taken, (Some(REFILL), Some(100 + 8 * (REFILL - 1))));
        assert!(cache.reserve(&account, 100) && (1..REFILL).all(|_| cache.reserve(&account, 8)));
        assert!(cache.trim(&account, true) && !cache.trim(&account, true), "also by an idle owner's poll");
    }

    #[test]
    fn what_is_charged_beyond_a_limit_is_counted_and_keeps_others_out_until_it_is_freed() {
        let account = account(2, 10);
        account.charge(10);
        assert_eq!(account.beyond(), 0);
        account.charge(1);
        account.charge(0);
        assert_eq!(
            (account.beyond(), account.objects.taken(), account.bytes.taken()),
            (2, Some(3), Some(11))
        );
        assert!(!account.reserve(0));
        account.give_back(1);
        account.give_back(0);
        assert!(!account.reserve(1) && account.reserve(0));
    }
}
