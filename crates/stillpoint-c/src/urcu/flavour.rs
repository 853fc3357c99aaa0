//! A flavour of liburcu: its domain, its lock, and its readers in reserve.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use stillpoint::fence::Mode;
use stillpoint::rcu::raw::Spare;
use stillpoint::rcu::wait::Stall;
use stillpoint::rcu::Domain;

use super::reader::Seat;
use super::worker::{Shared, Worker, Workers};
use crate::border::{call, refuse, Refusal};
use crate::copies;
use crate::domain::{builder, still_domain, still_domain_options, Hook};
use crate::handle::{self, sized, Parts};
use crate::own;
use crate::reserve;
use crate::spares::Spares;
use crate::thread::Blocked;

pub const STILL_URCU_MEMB: u32 = 0;
pub const STILL_URCU_MB: u32 = 1;
pub const STILL_URCU_QSBR: u32 = 2;
pub const STILL_URCU_BP: u32 = 3;

pub(crate) struct Flavour {
    number: u32,
    name: &'static str,
    /// The group, which is made at the first use, and never freed.
    group: AtomicPtr<Group>,
    /// Whether the flavour was used. After that it cannot be configured.
    is_used: AtomicBool,
    pub(super) shared: Shared,
    lock: Lock<Workers>,
}

/// A domain, its stall hook, and its readers in reserve.
pub(super) struct Group {
    pub(super) domain: Domain,
    pub(super) hook: Option<Hook>,
    /// For flavour bp, whose threads may register in signal handlers.
    reserve: Spares<Seat>,
    /// The group that this one replaced, if any. It is kept, in case a program used it against the rules.
    _before: *mut Group,
}

const NAMES: [&str; 4] = ["memb", "mb", "qsbr", "bp"];

static FLAVOURS: [Flavour; 4] = [Flavour::new(0), Flavour::new(1), Flavour::new(2), Flavour::new(3)];

pub(super) fn find(number: u32) -> Result<&'static Flavour, Refusal> {
    FLAVOURS.get(number as usize).ok_or_else(|| {
        let text = c"there is no flavour {} of liburcu: use STILL_URCU_MEMB, _MB, _QSBR or _BP";
        Refusal::invalid(text).with(number)
    })
}

/// A flavour whose number our own headers have passed.
pub(super) fn of(number: u32) -> &'static Flavour {
    &FLAVOURS[number as usize % FLAVOURS.len()]
}

pub(super) fn all() -> impl Iterator<Item = &'static Flavour> {
    FLAVOURS.iter()
}

impl Flavour {
    const fn new(number: u32) -> Self {
        Self {
            number,
            name: NAMES[number as usize],
            group: AtomicPtr::new(ptr::null_mut()),
            is_used: AtomicBool::new(false),
            shared: Shared::new(),
            lock: Lock::new(Workers::new()),
        }
    }

    pub(crate) fn name(&'static self) -> &'static &'static str {
        &self.name
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn is_qsbr(&self) -> bool {
        self.number == STILL_URCU_QSBR
    }

    /// The group. Makes it if there is none, and marks the flavour as used.
    #[inline]
    pub(super) fn group(&'static self) -> &'static Group {
        // Relaxed, both: a program configures a flavour before it uses it.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
            self.must_be_alone();
        }
        self.peek().unwrap_or_else(|| self.make())
    }

    /// The group, if there is one.
    #[inline]
    pub(super) fn peek(&'static self) -> Option<&'static Group> {
        // Acquire: pairs with the release in `publish`. SAFETY: groups are never freed.
        unsafe { self.group.load(Ordering::Acquire).as_ref() }
    }

    /// Reports if another copy of the library has the flavour.
    #[cold]
    fn must_be_alone(&self) {
        let default = copies::Default::FLAVOURS[self.number as usize];
        copies::have(default).unwrap_or_else(|refusal| refuse(&refusal));
    }

    #[cold]
    fn make(&'static self) -> &'static Group {
        let mut options = Domain::builder().name(format!("urcu-{}", self.name));
        if self.number == STILL_URCU_MB {
            options = options.fence(Mode::Symmetric);
        }
        // None of these options can be refused.
        let domain =
            options.build().expect("a domain without a fixed mode and without boosting can always be built");
        self.publish(domain, None, ptr::null_mut()).unwrap_or_else(|| {
            self.peek().expect("`publish` fails only if another thread has published a group")
        })
    }

    /// Publishes a group. `None` if another thread was faster.
    fn publish(
        &'static self,
        domain: Domain,
        hook: Option<Hook>,
        before: *mut Group,
    ) -> Option<&'static Group> {
        let group = Group { domain, hook, reserve: Spares::new(), _before: before };
        let group = Box::into_raw(Box::new(group));
        // Release: pairs with the acquire in `peek`. Relaxed on failure: `peek` looks again.
        let answer = self.group.compare_exchange(before, group, Ordering::Release, Ordering::Relaxed);
        if answer.is_err() {
            // SAFETY: `group` came from a box, and was not published.
            drop(unsafe { Box::from_raw(group) });
            return None;
        }
        // SAFETY: the group is published, and so is never freed.
        Some(unsafe { &*group })
    }

    /// Fills the reserve, if the flavour has one.
    pub(super) fn refill(&'static self) {
        if self.number == STILL_URCU_BP {
            self.group().fill_reserve();
        }
    }

    /// Wakes the workers' threads to refill the reserve. Neither allocates nor waits, because signal handlers call it.
    pub(super) fn ask_for_refill(&'static self) {
        if self.number == STILL_URCU_BP {
            self.default().into_iter().chain(self.deferring()).for_each(Worker::wake);
        }
    }

    /// Locks the list of workers. No callback runs under this lock.
    pub(super) fn lock(&'static self) -> Locked<'static, Workers> {
        self.lock.lock()
    }

    /// The lock, if the calling thread has [kept](Locked::keep) it. In a child, the thread that forked counts as the calling thread.
    pub(super) fn kept(&'static self) -> Option<Locked<'static, Workers>> {
        self.lock.is_kept_here().then(|| {
            // Relaxed: the lock orders the accesses to the field.
            self.lock.keeper.store(0, Ordering::Relaxed);
            Locked { lock: &self.lock, is_borrowed: false }
        })
    }
}

impl Group {
    /// Takes a reader from the reserve; null if it is empty. Neither allocates nor waits.
    pub(super) fn take_seat(&self) -> *mut Seat {
        self.reserve.take()
    }

    /// Puts a seat with a spare into the reserve, if there is room.
    pub(super) fn give_seat(&self, seat: *mut Seat) -> bool {
        self.reserve.give(seat)
    }

    /// Allocates the readers that are missing in the reserve, and blocks for their threads.
    pub(super) fn fill_reserve(&self) {
        own::fill_spares();
        // If memory is short, threads that register need the library's own reserve more.
        let make = || reserve::kept(|| Ok(Box::new(Seat::Spare(Spare::new(&self.domain)))));
        self.reserve.fill(|| make().map_or(ptr::null_mut(), Box::into_raw));
    }

    /// Calls the stall hook, if a reader holds up a grace period.
    pub(super) fn tell(&self) {
        if let (Some(hook), Some(stall)) = (&self.hook, self.domain.stall()) {
            let stall: Stall = stall;
            hook.call(&stall);
        }
    }
}

/// A lock that one function may take and another one release, also in the child of a `fork`.
struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// The thread that keeps the lock from one call to another, or 0.
    keeper: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used only under the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(super) struct Locked<'l, T> {
    lock: &'l Lock<T>,
    /// Whether the thread keeps the lock. If it does, the drop does not release the lock.
    is_borrowed: bool,
}

impl<T> Lock<T> {
    const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            keeper: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    fn lock(&self) -> Locked<'_, T> {
        let is_borrowed = self.is_kept_here();
        if !is_borrowed {
            // SAFETY: the mutex is initialised, and does not move, because it is in a static.
            unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        }
        Locked { lock: self, is_borrowed }
    }

    fn is_kept_here(&self) -> bool {
        // Relaxed: a thread finds its own number only if it has stored that itself. SAFETY: the function has no preconditions.
        self.keeper.load(Ordering::Relaxed) == unsafe { libc::pthread_self() }
    }
}

impl<T> Locked<'_, T> {
    /// Keeps the lock for the calling thread until [`Flavour::kept`]. Until then, [`Flavour::lock`] on this thread borrows it.
    pub(super) fn keep(self) {
        // Relaxed: see `is_kept_here`. SAFETY: the function has no preconditions.
        self.lock.keeper.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
        std::mem::forget(self);
    }

    /// Whether the calling thread keeps the lock.
    pub(super) fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }
}

impl<T> std::ops::Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked by this thread, which has one such value at a time.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> std::ops::DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked by this thread, which has one such value at a time.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: the calling thread has locked the mutex. In a child, the thread that forked may have locked it; the calling thread is
            // the copy of that thread.
            unsafe { libc::pthread_mutex_unlock(self.lock.mutex.get()) };
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_configure(flavour: u32, options: *const still_domain_options) -> c_int {
    call(|| {
        let flavour = find(flavour)?;
        // SAFETY: the caller passes options, which begin with their size.
        let options = unsafe { sized(options) }?;
        let (mut builder, hook) = (builder(&options)?, options.hook());
        if !options.has_name() {
            builder = builder.name(format!("urcu-{}", flavour.name));
        }
        if flavour.number == STILL_URCU_MB {
            if options.is_asymmetric() {
                return Err(Refusal::invalid(
                    c"flavour mb has no asymmetric mode, since its readers issue full fences",
                ));
            }
            builder = builder.fence(Mode::Symmetric);
        }
        // Relaxed: a program configures a flavour before it uses it.
        if flavour.is_used.load(Ordering::Relaxed) {
            return Err(Refusal::new(
                libc::EBUSY,
                c"the flavour was used already: configure it before its first use",
            ));
        }
        let domain = builder.build()?;
        let _quiet = Blocked::every();
        let before = flavour.group.load(Ordering::Acquire);
        match flavour.publish(domain, hook, before) {
            Some(group) if !before.is_null() => group.fill_reserve(),
            Some(_) => {}
            None => return Err(Refusal::new(libc::EBUSY, c"another thread is configuring the flavour")),
        }
        Ok(0)
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_domain(flavour: u32) -> *mut still_domain {
    call(|| {
        let group = find(flavour)?.group();
        handle::make(|| Ok((group.domain.clone(), Parts::default())))
    })
}

/// Called at the start of a program that includes the header of bp. Makes the domain and the reserve, which a signal handler may need.
#[no_mangle]
pub extern "C" fn still_urcu_prepare_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        // A handler that is the first to use the flavour need not look at other copies then. If one of them has it, the first use reports
        // that: the program has set its hook by then.
        let _ = copies::have(copies::Default::FLAVOURS[flavour.number as usize]);
        // This does not count as a use: the program may still configure the flavour.
        flavour.peek().unwrap_or_else(|| flavour.make()).fill_reserve();
        Ok(())
    });
}
