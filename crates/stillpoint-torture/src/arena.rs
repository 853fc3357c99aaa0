//! The objects of the model, and the records that outlive them.
//!
//! Cells hold [`Handle`]s, which the library frees. Each handle stands for a *record* in an arena that is never
//! freed. The handle's destructor marks the record. So a reader learns from the record that its object was destroyed,
//! and does not rely on the contents of freed memory. A reader remembers the record that it found first. It compares
//! what it reads from the handle later, and never follows it.
//!
//! The handle lies between two canaries, in memory that is freed and used again. The destructor poisons it. So a
//! write at the wrong time, by the library or by an earlier owner of the memory, is also found.
//!
//! A record ages: it is *linked*, then *unlinked*, then one older with each grace period that is over, and at the end
//! *dead*. Records are used again in rotation, each time with the next generation.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::counts::{Hold, Kind, Looks, OLDEST, SharedTimes, Times};
use crate::findings::Findings;

/// The records of one maker: more than a flood needs together with the objects that sleeping readers hold up.
const PART: usize = 8192;
/// The records that a maker tries before it gives up for now.
const TRIES: usize = 64;

const LINKED: u64 = 0;
/// Region readers that began before the unlink may still hold it; later ones may not.
const UNLINKED: u64 = 1;
const DEAD: u64 = 0xff;
const AGE_BITS: u32 = 8;
const INDEX_BITS: u32 = 24;

/// The canaries of a handle are these, combined with its word, so that freed memory does not match.
const FRONT: u64 = 0x5711_1901_47c0_ffee;
const BACK: u64 = 0x0a11_c1ea_20ff_1a65;
const POISON: u64 = 0xdead_dead_dead_dead;

// Relaxed throughout: a record's state is one word. That a reader cannot see what happens after its section follows from the
// happens-before that the library promises, which is what is tested.
const RELAXED: Ordering = Ordering::Relaxed;

/// Shared by all threads of the run. It lives for ever, because destructors may run at any time.
#[derive(Debug)]
pub(crate) struct Context {
    records: Box<[Record]>,
    begun: Instant,
    made: AtomicU64,
    /// Objects that were destroyed, by their age.
    destroyed: [AtomicU64; OLDEST as usize + 1],
    /// The times from unlink to destructor.
    delays: SharedTimes,
    /// The number of deferred callbacks that were called.
    pub(crate) called: AtomicU64,
    pub(crate) findings: &'static Findings,
}

/// The part of an object that is never freed.
#[derive(Debug)]
struct Record {
    /// Generation and age.
    state: AtomicU64,
    /// The time of the unlink, in nanoseconds from the beginning; 0 if it was not taken.
    unlinked: AtomicU64,
}

/// The identity of an object: a record and its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64);

/// The content of a cell. The order of fields puts the rest between the canaries.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Handle {
    front: AtomicU64,
    word: AtomicU64,
    context: &'static Context,
    back: AtomicU64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {} of generation {}", self.index(), self.generation())
    }
}

impl Identity {
    fn new(index: usize, generation: u64) -> Self {
        Self(generation << INDEX_BITS | index as u64)
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    fn generation(self) -> u64 {
        self.0 >> INDEX_BITS
    }
}

fn state(generation: u64, age: u64) -> u64 {
    generation << AGE_BITS | age
}

fn age_in(state: u64) -> u64 {
    state & ((1 << AGE_BITS) - 1)
}

fn generation_in(state: u64) -> u64 {
    state >> AGE_BITS
}

impl Context {
    /// For `makers` makers at a time. Lives for the rest of the process.
    pub(crate) fn leak(makers: usize, findings: &'static Findings) -> &'static Self {
        assert!(makers * PART <= 1 << INDEX_BITS, "records have an index of {INDEX_BITS} bits");
        let record = || Record { state: AtomicU64::new(state(0, DEAD)), unlinked: AtomicU64::new(0) };
        Box::leak(Box::new(Self {
            records: std::iter::repeat_with(record).take(makers * PART).collect(),
            begun: Instant::now(),
            made: AtomicU64::new(0),
            destroyed: Default::default(),
            delays: SharedTimes::default(),
            called: AtomicU64::new(0),
            findings,
        }))
    }

    /// Adds a finding.
    #[cold]
    pub(crate) fn find(&self, text: impl FnOnce() -> String) {
        self.findings.add(text);
    }

    /// Looks at an object for the first time. `None` if it was destroyed already, which is a finding.
    #[inline]
    pub(crate) fn meet(&self, handle: &Handle, hold: Hold, looks: &mut Looks) -> Option<Identity> {
        let Some(identity) = handle.identity() else {
            self.find(|| format!("{hold} found garbage: its object had been freed"));
            return None;
        };
        self.look(identity, hold, looks).then_some(identity)
    }

    /// Looks at an object again. Returns whether it is unchanged.
    #[inline]
    pub(crate) fn meet_again(&self, handle: &Handle, known: Identity, hold: Hold, looks: &mut Looks) -> bool {
        if !self.look(known, hold, looks) {
            return false;
        }
        let same = handle.identity() == Some(known);
        if !same {
            self.find(|| format!("the memory of {known} was used again while {hold} held it"));
        }
        same
    }

    /// Looks at an object, if there is one, and again `again` times, or until it has changed.
    #[inline]
    pub(crate) fn watch(&self, handle: Option<&Handle>, hold: Hold, looks: &mut Looks, again: u32) {
        let Some(handle) = handle else { return };
        let Some(known) = self.meet(handle, hold, looks) else { return };
        for _ in 0..again {
            if !self.meet_again(handle, known, hold, looks) {
                break;
            }
        }
    }

    /// Checks the record of an object that is held.
    #[inline]
    fn look(&self, identity: Identity, hold: Hold, looks: &mut Looks) -> bool {
        let state = self.records.get(identity.index()).map_or(0, |record| record.state.load(RELAXED));
        let (generation, age) = (generation_in(state), age_in(state));
        if generation != identity.generation() || age == DEAD {
            self.find(|| format!("{identity} was destroyed while {hold} held it"));
            return false;
        }
        if age > UNLINKED && hold.kind != Kind::Protected {
            self.find(|| format!("{hold} held {identity} after its grace period: it had the age {age}"));
            return false;
        }
        looks.add(hold.kind, age);
        true
    }

    /// Notes that the caller has just unlinked the object, and has not retired it yet.
    pub(crate) fn unlink(&self, identity: Identity) {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.records[identity.index()].unlinked.store(now, RELAXED);
        self.grow_older(identity);
    }

    /// Makes a linked object unlinked, or an unlinked one a grace period older. Returns its age, or `None` if it
    /// is destroyed.
    pub(crate) fn grow_older(&self, identity: Identity) -> Option<u64> {
        let record = &self.records[identity.index()];
        record
            .state
            .fetch_update(RELAXED, RELAXED, |now| {
                let alive = generation_in(now) == identity.generation() && age_in(now) != DEAD;
                alive.then(|| state(identity.generation(), (age_in(now) + 1).min(OLDEST)))
            })
            .ok()
            .map(|before| (age_in(before) + 1).min(OLDEST))
    }

    fn destroy(&self, identity: Identity) {
        let Some(record) = self.records.get(identity.index()) else {
            self.find(|| "memory that holds no object was destroyed as an object".to_owned());
            return;
        };
        let unlinked = record.unlinked.swap(0, RELAXED);
        if unlinked != 0 {
            self.delays.add(self.begun.elapsed().saturating_sub(Duration::from_nanos(unlinked)));
        }
        let before = record.state.swap(state(identity.generation(), DEAD), RELAXED);
        self.destroyed[age_in(before).min(OLDEST) as usize].fetch_add(1, RELAXED);
        if generation_in(before) != identity.generation() || age_in(before) == DEAD {
            self.find(|| format!("{identity} was destroyed a second time"));
        }
    }

    /// Checks that every object was destroyed once. Call it when no thread and no domain is left.
    pub(crate) fn audit(&self) {
        let (made, destroyed) = (self.made(), self.destroyed());
        if made != destroyed {
            self.find(|| format!("{made} objects were made, but {destroyed} destroyed"));
        }
        let alive = self.records.iter().filter(|record| age_in(record.state.load(RELAXED)) != DEAD).count();
        if alive != 0 {
            self.find(|| format!("{alive} objects were never destroyed"));
        }
    }

    /// The number of objects that dropped makers have made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(RELAXED)
    }

    /// The number of objects that are unlinked and not destroyed. Reads every record.
    pub(crate) fn waiting(&self) -> usize {
        let ages = self.records.iter().map(|record| age_in(record.state.load(RELAXED)));
        ages.filter(|&age| age != LINKED && age != DEAD).count()
    }

    pub(crate) fn destroyed(&self) -> u64 {
        self.destroyed_by_age().iter().sum()
    }

    /// The number of objects that were destroyed at each age.
    pub(crate) fn destroyed_by_age(&self) -> [u64; OLDEST as usize + 1] {
        std::array::from_fn(|age| self.destroyed[age].load(RELAXED))
    }

    /// The times from unlink to destructor, of objects whose unlink was timed.
    pub(crate) fn delays(&self) -> Times {
        self.delays.get()
    }
}

impl Handle {
    fn new(word: u64, context: &'static Context) -> Self {
        let [front, word, back] = [word ^ FRONT, word, word ^ BACK].map(AtomicU64::new);
        Self { front, word, context, back }
    }

    /// The identity of this object, unless the memory no longer holds an object.
    #[inline]
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (front, word) = (self.front.load(RELAXED), self.word.load(RELAXED));
        let whole = word ^ FRONT == front && word ^ BACK == self.back.load(RELAXED);
        whole.then_some(Identity(word))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (word, context) = (*self.word.get_mut(), self.context);
        if self.identity().is_none() {
            context.find(|| format!("the canaries of {} were overwritten", Identity(word)));
        }
        // Atomic, because the compiler may omit plain stores to dying memory.
        for part in [&self.front, &self.word, &self.back] {
            part.store(POISON, RELAXED);
        }
        context.destroy(Identity(word));
    }
}

/// Makes objects from its own part of the records.
#[derive(Debug)]
pub(crate) struct Maker {
    context: &'static Context,
    part: Range<usize>,
    next: usize,
    made: u64,
}

impl Maker {
    /// The maker of part `number`. There must be only one at a time.
    pub(crate) fn new(context: &'static Context, number: usize) -> Self {
        let part = number * PART..(number + 1) * PART;
        Self { context, next: part.start, part, made: 0 }
    }

    /// A maker without records, for threads that only read.
    pub(crate) fn none(context: &'static Context) -> Self {
        Self { context, part: 0..0, next: 0, made: 0 }
    }

    /// Makes an object; `None` if too many are alive. A record rests until its turn comes round again.
    pub(crate) fn make(&mut self) -> Option<Box<Handle>> {
        for _ in 0..TRIES.min(self.part.len()) {
            let index = self.next;
            self.next = if index + 1 == self.part.end { self.part.start } else { index + 1 };
            let record = &self.context.records[index].state;
            let last = record.load(RELAXED);
            if age_in(last) == DEAD {
                let identity = Identity::new(index, generation_in(last) + 1);
                record.store(state(identity.generation(), LINKED), RELAXED);
                self.made += 1;
                return Some(Box::new(Handle::new(identity.0, self.context)));
            }
        }
        None
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.context.made.fetch_add(self.made, RELAXED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint::fence::Mode;

    const GUARD: Hold = Hold { kind: Kind::Guard, mode: Mode::Symmetric };
    const PROTECTED: Hold = Hold { kind: Kind::Protected, mode: Mode::Symmetric };

    fn one() -> (&'static Context, Box<Handle>, Identity, Looks) {
        let context = Context::leak(1, Findings::leak());
        let mut looks = Looks::default();
        let handle = Maker::new(context, 0).make().unwrap();
        let identity = context.meet(&handle, GUARD, &mut looks).unwrap();
        (context, handle, identity, looks)
    }

    fn findings(context: &Context) -> String {
        context.findings.texts().join("; ")
    }

    #[test]
    fn an_object_that_is_held_and_then_destroyed_is_clean() {
        let (context, handle, identity, mut looks) = one();
        assert_eq!(context.grow_older(identity), Some(UNLINKED));
        assert!(context.meet_again(&handle, identity, GUARD, &mut looks));
        drop(handle);
        assert_eq!(context.grow_older(identity), None);
        context.audit();
        assert!(!context.findings.any(), "{}", findings(context));
    }

    #[test]
    fn an_object_that_is_destroyed_while_it_is_held_is_found() {
        let (context, handle, identity, mut looks) = one();
        let poisoned = Handle::new(POISON, context);
        poisoned.front.store(POISON, RELAXED);
        assert_eq!(context.meet(&poisoned, GUARD, &mut looks), None);
        assert!(findings(context).contains("garbage"));
        std::mem::forget(poisoned);
        drop(handle);
        assert!(!context.look(identity, PROTECTED, &mut looks));
        assert!(findings(context).contains("was destroyed while"));
    }

    #[test]
    fn a_region_reader_must_not_outlast_the_grace_period_of_its_object() {
        let (context, handle, identity, mut looks) = one();
        context.grow_older(identity);
        context.grow_older(identity);
        assert!(context.meet_again(&handle, identity, PROTECTED, &mut looks));
        assert!(!context.findings.any());
        assert!(!context.meet_again(&handle, identity, GUARD, &mut looks));
        assert!(findings(context).contains("age 2"), "{}", findings(context));
    }

    #[test]
    fn memory_that_became_another_object_is_found() {
        let (context, handle, identity, mut looks) = one();
        let other = Handle::new(identity.0 + 1, context);
        assert!(!context.meet_again(&other, identity, GUARD, &mut looks));
        assert!(findings(context).contains("used again"));
        std::mem::forget(other);
        drop(handle);
    }

    #[test]
    fn canaries_that_were_overwritten_are_found_at_the_end() {
        for canary in [|handle: &Handle| &raw const handle.front, |handle: &Handle| &raw const handle.back] {
            let (context, handle, ..) = one();
            // SAFETY: the canary belongs to the handle, which is alive.
            unsafe { &*canary(&handle) }.fetch_add(1, RELAXED);
            drop(handle);
            assert!(findings(context).contains("overwritten"), "{}", findings(context));
        }
    }

    #[test]
    fn the_time_from_unlink_to_destructor_and_the_age_are_noted() {
        let (context, handle, identity, _) = one();
        context.unlink(identity);
        context.grow_older(identity);
        drop(handle);
        assert_eq!(context.destroyed_by_age(), [0, 0, 1, 0, 0, 0, 0]);
        assert_ne!(context.delays(), Times::default());
    }

    #[test]
    fn the_audit_finds_what_is_left_and_what_was_destroyed_twice() {
        let (context, handle, identity, _) = one();
        context.audit();
        assert!(findings(context).contains("1 objects were never destroyed"), "{}", findings(context));
        drop(handle);
        context.destroy(identity);
        assert!(findings(context).contains("a second time"));
    }

    #[test]
    fn a_maker_gives_up_when_everything_is_alive() {
        let context = Context::leak(1, Findings::leak());
        let mut maker = Maker::new(context, 0);
        let mut alive: Vec<_> = std::iter::from_fn(|| maker.make()).collect();
        assert_eq!(alive.len(), PART);
        assert!(maker.make().is_none());
        // The dead records are farther away than one call tries.
        alive.truncate(PART / 2);
        assert!(maker.make().is_none());
        assert!((0..PART / TRIES).any(|_| maker.make().is_some()));
    }
}
