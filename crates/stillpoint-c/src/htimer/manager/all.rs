//! All managers of a process: how one is made, taken and found.

use super::*;

/// The bits of a number of a manager.
pub(super) const NUMBERS: u32 = 12;
/// How many managers a process has, at most, and one more.
pub(super) const MOST: usize = 1 << NUMBERS;

/// All managers, at their numbers. The first place stays empty, and no empty place is followed by one that is used.
pub(super) static ALL: [AtomicPtr<Manager>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];

pub(super) fn numbered(number: usize) -> Option<&'static Manager> {
    // SAFETY: managers are never freed. Acquire: pairs with the release in `make`.
    unsafe { ALL.get(number)?.load(Ordering::Acquire).as_ref() }
}

pub(super) fn all() -> impl Iterator<Item = &'static Manager> {
    (1..).map_while(numbered)
}

/// The manager of the thread with this stamp, unless another thread has it now. The answer may be out of date: see H6.
pub(in crate::htimer) fn stamped(stamp: u32) -> Option<&'static Manager> {
    numbered(stamp as usize % MOST).filter(|manager| manager.is_of(stamp))
}

/// The manager whose address C code has.
pub(in crate::htimer) fn target(address: *const still_htimer_mgr) -> Result<&'static Manager, Refusal> {
    let size = size_of::<AtomicPtr<Manager>>();
    let place = address.addr().wrapping_sub(ALL.as_ptr().addr());
    let found = (place % size == 0).then(|| numbered(place / size)).flatten();
    found.ok_or_else(|| match address.is_null() {
        true => Refusal::invalid(c"NULL was passed for a manager of timers"),
        false => Refusal::invalid(
            c"what was passed is no manager of timers, or one of another copy of the library",
        ),
    })
}

/// The clock of all managers, which its first use calibrates.
pub(super) fn clock() -> &'static Clock {
    pub(super) static CLOCK: Lasting<Clock> = Lasting::new();
    CLOCK.get_or_make(Clock::new)
}

/// How a manager is made.
pub(in crate::htimer) struct Plan {
    pub(in crate::htimer) shift: u32,
    /// A power of two.
    pub(in crate::htimer) requests: usize,
    pub(in crate::htimer) burst: usize,
    pub(in crate::htimer) lcore: u32,
    /// The time at which it begins, in ticks, and that it has no clock.
    pub(in crate::htimer) begin: Option<u64>,
}

/// The manager that a thread gets. Reads a word for each manager of the process.
pub(in crate::htimer) fn take(plan: &Plan) -> Result<&'static Manager, Refusal> {
    let begin = plan.begin;
    let clock = begin.is_none().then(clock);
    let now = clock.map_or(begin.unwrap_or(0) << plan.shift, Clock::now);
    let wheel = reserve::kept(|| {
        let text = c"there is no memory for the lists of a wheel";
        NodeWheel::try_new(now >> plan.shift).map_err(|_| Refusal::no_memory(text))
    })?;
    let manager = match all().find(|manager| manager.is_got(plan.requests)) {
        Some(manager) => manager,
        None => make(plan.requests)?,
    };
    // SAFETY: this thread has taken the manager.
    let own = unsafe { manager.own() };
    let (burst, shift) = (plan.burst, plan.shift);
    let (wheel, quiet_until) = (Some(wheel), u64::MAX);
    *own =
        Own { wheel, now, quiet_until, shift, clock, burst, is_calling: false, is_stopping: false, ..*own };
    manager.has_counter.store(clock.is_some_and(Clock::has_counter), Ordering::Relaxed);
    manager.lcore.store(plan.lcore, Ordering::Relaxed);
    manager.inbox.open();
    Ok(manager)
}

/// A new manager, which the caller has.
pub(super) fn make(requests: usize) -> Result<&'static Manager, Refusal> {
    pub(super) const TEXT: &std::ffi::CStr = c"there is no memory for the requests of a manager";
    let mut places = Vec::new();
    reserve::closed(|| places.try_reserve_exact(requests)).map_err(|_| Refusal::no_memory(TEXT))?;
    places.resize_with(requests, || Request {
        link: AtomicPtr::new(ptr::null_mut()),
        source: Cell::new(None),
        timer: Cell::new(ptr::null()),
        time: Cell::new(0),
        tell: Cell::new(Tell { function: None, argument: ptr::null_mut() }),
        kind: Cell::new(CANCEL),
        before: Cell::new(0),
    });
    let own = Own {
        wheel: None,
        now: 0,
        quiet_until: u64::MAX,
        shift: 0,
        clock: None,
        burst: 0,
        free: ptr::null_mut(),
        away: 0,
        is_calling: false,
        is_stopping: false,
    };
    let made = reserve::kept(|| {
        Ok(Box::new(Manager {
            inbox: CachePadded::default(),
            results: CachePadded::default(),
            is_taken: AtomicBool::new(true),
            stamp: AtomicU32::new(0),
            lcore: AtomicU32::new(u32::MAX),
            has_counter: AtomicBool::new(false),
            requests: places.into_boxed_slice(),
            own: UnsafeCell::new(own),
        }))
    })?;
    made.results.open();
    let manager = Box::into_raw(made);
    // SAFETY: it came from the box, and is leaked if it gets a number.
    let made = unsafe { &*manager };
    for request in &made.requests {
        request.source.set(Some(made));
        // SAFETY: the caller has the manager.
        unsafe { made.put_back(request) };
    }
    for (number, place) in ALL.iter().enumerate().skip(1) {
        // Relaxed: published with the number.
        made.stamp.store((1 << NUMBERS) + number as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `numbered`.
        if place.compare_exchange(ptr::null_mut(), manager, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Ok(made);
        }
    }
    // SAFETY: nobody else has it.
    drop(unsafe { Box::from_raw(manager) });
    let text = c"the process has {} managers of timers: no more are possible";
    Err(Refusal::new(libc::EAGAIN, text).with(MOST - 1))
}

/// The manager of an lcore. Reads a word for each manager of the process.
pub(in crate::htimer) fn of_lcore(lcore: u32) -> Option<&'static Manager> {
    // Relaxed, both: the answer may be out of date, and whoever uses the manager finds its inbox closed then.
    let has_it = |manager: &&Manager| manager.lcore.load(Ordering::Relaxed) == lcore;
    all().find(has_it).filter(|_| lcore != u32::MAX)
}

/// In the child of a fork: the other threads are not there. Their managers stop, and the requests of this thread, whose manager is `own`,
/// come back without a result.
///
/// # Errors
/// In a function that the manager calls: it is walking a list.
///
/// # Safety
/// The process has one thread.
pub(in crate::htimer) unsafe fn reset_after_fork(own: Option<&'static Manager>) -> Result<(), Refusal> {
    if let Some(own) = own {
        // SAFETY: it is the calling thread's.
        drop(unsafe { own.begin() }?);
    }
    // First from all lists: a request may be in the list of another manager than its own.
    all().for_each(Manager::forget);
    for manager in all() {
        // SAFETY: there is no other thread.
        unsafe {
            let Own { free, away, .. } = manager.own();
            (*free, *away) = (ptr::null_mut(), 0);
            manager.requests.iter().for_each(|request| manager.put_back(request));
            // Relaxed: as above.
            if manager.is_taken.load(Ordering::Relaxed) && !own.is_some_and(|own| ptr::eq(own, manager)) {
                // The thread may have been making it, or dropping it.
                ptr::write(&mut manager.own().wheel, None);
                manager.leave();
            }
        }
    }
    Ok(())
}
