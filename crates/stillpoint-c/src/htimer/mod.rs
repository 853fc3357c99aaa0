//! Timers with functions, of one thread, which other threads may add and cancel: the functions of `stillpoint/htimer.h`.

mod manager;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::border::{briefly, call, Refusal};
use crate::handle::{is_unused, sized, versioned};
use crate::own;
use crate::thread_end::{disown, note};

use manager::{
    follow, next, of_lcore, stamped, take, target, time, Manager, Plan, Tell, Timer, Wanted, ADDED,
    ALREADY_CANCELLED, EXPIRED, FLAGS, PERIODICAL, SENT, TICKS, TSC,
};
pub use manager::{still_htimer, still_htimer_fn, still_htimer_mgr, still_htimer_result_fn};

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct still_htimer_options {
    size: usize,
    tick: u64,
    requests: usize,
    burst: usize,
    begin: u64,
    no_clock: u32,
    reserved: u32,
}

// SAFETY: all fields are numbers.
versioned!(unsafe still_htimer_options: 48);

#[repr(C)]
pub struct still_htimer_request {
    timer: *mut still_htimer,
    time: u64,
    period: u64,
    function: still_htimer_fn,
    argument: *mut c_void,
    result_function: still_htimer_result_fn,
    result_argument: *mut c_void,
    flags: u32,
}

const NONE: Refusal =
    Refusal::new(libc::ESRCH, c"this thread has no manager of timers: call still_htimer_start first");

/// The calling thread's manager.
#[inline]
fn mine() -> Result<&'static Manager, Refusal> {
    let manager = own::find().map_or(ptr::null(), |own| own.htimers.get()).cast::<Manager>();
    // SAFETY: null, or a manager, which is never freed.
    unsafe { manager.as_ref() }.ok_or(NONE)
}

/// # Safety
/// `timer` is null, or the address of a timer.
#[inline]
unsafe fn timer<'t>(timer: *const still_htimer) -> Result<&'t Timer, Refusal> {
    // SAFETY: by the caller's promise.
    unsafe { timer.cast::<Timer>().as_ref() }.ok_or_else(|| Refusal::invalid(c"NULL was passed for a timer"))
}

/// What a caller wants, if the timer may be given away.
fn wanted(
    timer: &Timer,
    (expiration, period): (u64, u64),
    (function, argument): (still_htimer_fn, *mut c_void),
    flags: u32,
) -> Result<Wanted, Refusal> {
    let function =
        function.ok_or_else(|| Refusal::invalid(c"NULL was passed for the function of a timer"))?;
    if flags & !FLAGS != 0 {
        return Err(Refusal::invalid(c"there is no flag {} of timers").with(flags & !FLAGS));
    }
    if flags & TICKS != 0 && flags & TSC != 0 {
        return Err(Refusal::invalid(c"a time is in ticks or in cycles, not in both"));
    }
    if flags & PERIODICAL != 0 && period == 0 {
        return Err(Refusal::invalid(c"a periodical timer has a period of 0"));
    }
    match timer.state() {
        ADDED => Err(Refusal::new(libc::EBUSY, c"the timer is pending: cancel it first")),
        SENT => Err(Refusal::new(
            libc::EBUSY,
            c"the timer was given to a thread, which has not taken it in: wait for the result",
        )),
        _ => Ok(Wanted { expiration, period, function, argument, flags }),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_start_(options: *const still_htimer_options, lcore: c_uint) -> c_int {
    call(|| {
        let plan = match options.is_null() {
            true => plan(None, lcore),
            // SAFETY: the caller passes options.
            false => plan(Some(unsafe { sized(options) }?), lcore),
        }?;
        let own = own::try_own().ok_or(Refusal::no_memory(c"there is no memory for a manager"))?;
        if !own.htimers.get().is_null() {
            return Err(Refusal::new(libc::EALREADY, c"this thread has a manager of timers already"));
        }
        let manager = take(&plan)?;
        if let Err(refusal) = note(manager.address().cast(), thread_ends) {
            // SAFETY: this thread has taken the manager.
            unsafe { manager.leave() };
            return Err(refusal);
        }
        own.htimers.set(ptr::from_ref(manager).cast());
        Ok(0)
    })
}

fn plan(options: Option<still_htimer_options>, lcore: u32) -> Result<Plan, Refusal> {
    const LEAST: usize = 16;
    const MOST: usize = 1 << 20;
    fn or<N: PartialEq + From<u8>>(value: N, usual: N) -> N {
        if value == N::from(0) {
            usual
        } else {
            value
        }
    }

    let options = options.unwrap_or_default();
    if options.tick != 0 && !options.tick.is_power_of_two() {
        let text = c"a tick of {} ns is not a power of two";
        return Err(Refusal::invalid(text).with(options.tick as usize));
    }
    if options.requests > MOST {
        let text = c"`requests` is {}: a thread has at most {}";
        return Err(Refusal::invalid(text).with(options.requests).with(MOST));
    }
    is_unused::<still_htimer_options>(options.reserved)?;
    // Without a clock, ticks are what the program counts: then a tick of a nanosecond leaves it all 64 bits.
    let has_clock = options.no_clock == 0;
    let shift = or(options.tick, if has_clock { 1 << 10 } else { 1 }).trailing_zeros();
    if !has_clock && options.begin > u64::MAX >> shift {
        let text = c"`begin` is beyond the end of time, which is 2^64 ns";
        return Err(Refusal::invalid(text));
    }
    Ok(Plan {
        shift,
        requests: or(options.requests, 256).max(LEAST).next_power_of_two(),
        burst: or(options.burst, usize::MAX),
        lcore,
        begin: (!has_clock).then_some(options.begin),
    })
}

/// # Safety
/// `handle` is that of the calling thread's manager.
unsafe fn thread_ends(handle: *mut c_void) {
    if let Ok(manager) = target(handle.cast()) {
        if let Some(own) = own::find() {
            own.htimers.set(ptr::null());
        }
        // SAFETY: the calling thread has the manager, and has just forgotten it.
        unsafe { manager.leave() };
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_stop() -> isize {
    call(|| {
        let manager = mine()?;
        // SAFETY: it is the calling thread's.
        let count = unsafe { manager.begin() }?.empty()?;
        disown(manager.address().cast());
        // SAFETY: as above.
        unsafe { thread_ends(manager.address().cast()) };
        Ok(count as isize)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_reset_after_fork() -> c_int {
    // SAFETY: the caller promises that the process has one thread.
    call(|| unsafe { manager::reset_after_fork(mine().ok()) }.map(|()| 0))
}

#[no_mangle]
pub extern "C" fn still_htimer_mgr_self() -> *mut still_htimer_mgr {
    briefly(|| mine().map(Manager::address))
}

#[no_mangle]
pub extern "C" fn still_htimer_mgr_of_lcore(lcore: c_uint) -> *mut still_htimer_mgr {
    briefly(|| {
        let text = c"no thread with lcore {} has a manager of timers";
        of_lcore(lcore).map(Manager::address).ok_or_else(|| Refusal::new(libc::ESRCH, text).with(lcore))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_add(
    place: *mut still_htimer,
    expiration: u64,
    period: u64,
    function: still_htimer_fn,
    argument: *mut c_void,
    flags: u32,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a timer, which is its own.
        let timer = unsafe { timer(place) }?;
        let wanted = wanted(timer, (expiration, period), (function, argument), flags)?;
        let manager = mine()?;
        manager.accepts(flags)?;
        // SAFETY: the manager is the calling thread's. The timer is in no wheel, and the caller gives it to this one.
        unsafe { manager.add(timer, wanted) }.map(|()| 0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_cancel(place: *mut still_htimer) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a timer.
        let timer = unsafe { timer(place) }?;
        let manager = mine()?;
        // SAFETY: the manager is the calling thread's.
        if let Some(result) = unsafe { manager.cancel(timer) } {
            return Ok(result);
        }
        match timer.state() {
            ADDED | SENT => {
                let text =
                    c"the timer is another thread's, or on its way to one: cancel it by still_htimer_async_cancel";
                Err(Refusal::new(libc::EBUSY, text))
            }
            EXPIRED => Ok(EXPIRED),
            _ => Ok(ALREADY_CANCELLED),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_state(place: *const still_htimer) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a timer.
        Ok(unsafe { timer(place) }?.state())
    })
}

fn no_room() -> Refusal {
    Refusal::new(
        libc::EAGAIN,
        c"all requests of this thread are under way: call still_htimer_process, and try again, or set `requests`",
    )
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_async_add(
    manager: *mut still_htimer_mgr,
    place: *mut still_htimer,
    expiration: u64,
    period: u64,
    function: still_htimer_fn,
    argument: *mut c_void,
    flags: u32,
    result_function: still_htimer_result_fn,
    result_argument: *mut c_void,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a timer, which is its own.
        let timer = unsafe { timer(place) }?;
        let wanted = wanted(timer, (expiration, period), (function, argument), flags)?;
        let (source, target) = (mine()?, target(manager)?);
        target.accepts(flags)?;
        let tell = Tell { function: result_function, argument: result_argument };
        // SAFETY: the source is the calling thread's, and the caller gives the timer away.
        match unsafe { source.ask(target, timer, Some(wanted), tell) }? {
            true => Ok(0),
            false => Err(no_room()),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_async_add_burst(
    manager: *mut still_htimer_mgr,
    requests: *const still_htimer_request,
    count: usize,
) -> isize {
    briefly(|| {
        if count == 0 {
            return Ok(0);
        }
        if requests.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for requests"));
        }
        let (source, target) = (mine()?, target(manager)?);
        let mut refused = None;
        let check = |request: &still_htimer_request| {
            // SAFETY: the caller passes a timer, which is its own.
            let timer = unsafe { timer(request.timer) }?;
            let (times, function) = ((request.time, request.period), (request.function, request.argument));
            let wanted = wanted(timer, times, function, request.flags)?;
            target.accepts(request.flags)?;
            Ok((timer, wanted, Tell { function: request.result_function, argument: request.result_argument }))
        };
        // Read one by one, and no further than there are places: the array may be longer than memory is.
        // SAFETY: the caller passes this many requests.
        let requests = (0..count).map(|number| unsafe { &*requests.add(number) });
        let timers = requests.map_while(|request| match check(request) {
            Ok(timer) => Some(timer),
            Err(refusal) => {
                refused = Some(refusal);
                None
            }
        });
        // SAFETY: the source is the calling thread's, and the caller gives the timers away.
        match unsafe { source.ask_many(target, timers) }? {
            0 => Err(refused.unwrap_or_else(no_room)),
            count => Ok(count as isize),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_async_cancel(
    place: *mut still_htimer,
    result_function: still_htimer_result_fn,
    result_argument: *mut c_void,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a timer that was added, and keeps it until the result has come.
        let timer = unsafe { timer(place) }?;
        let source = mine()?;
        let tell = Tell { function: result_function, argument: result_argument };
        let asked = follow(timer, |owner| {
            if owner == 0 {
                return Err(Refusal::new(libc::ENOENT, c"the timer was never added"));
            }
            let gone = c"the thread of this timer has stopped its manager, or has ended";
            let target = stamped(owner).ok_or(Refusal::new(libc::EPIPE, gone))?;
            // SAFETY: the source is the calling thread's, and the caller keeps the timer until the result has come.
            unsafe { source.ask(target, timer, None, tell) }
        })?;
        match asked {
            true => Ok(0),
            false => Err(no_room()),
        }
    })
}

#[no_mangle]
pub extern "C" fn still_htimer_process() -> isize {
    briefly(|| {
        // SAFETY: it is the calling thread's.
        Ok(unsafe { mine()?.begin() }?.process() as isize)
    })
}

/// Refuses flags that are no unit of the wheel's time.
fn unit(flags: u32) -> Result<(), Refusal> {
    match flags & !TICKS {
        0 => Ok(()),
        _ => Err(Refusal::invalid(c"the flags of this call are 0, for nanoseconds, or STILL_HTIMER_TICKS")),
    }
}

/// Manages at this time, or at that of the clock.
fn manage(given: Option<(u64, u32)>) -> isize {
    briefly(|| {
        let manager = mine()?;
        // SAFETY: it is the calling thread's.
        unsafe {
            if let Some((_, flags)) = given {
                unit(match flags {
                    TSC => 0,
                    flags => flags,
                })?;
                manager.accepts(flags)?;
            }
            let now = time(manager, given)?;
            let calling = manager.begin()?;
            // First the time, so that a delay that another thread has asked for does not begin in the past.
            calling.set_time(now);
            calling.process();
            Ok(calling.expire() as isize)
        }
    })
}

#[no_mangle]
pub extern "C" fn still_htimer_manage() -> isize {
    manage(None)
}

#[no_mangle]
pub extern "C" fn still_htimer_manage_time(now: u64, flags: u32) -> isize {
    manage(Some((now, flags)))
}

#[no_mangle]
pub extern "C" fn still_htimer_time(flags: u32) -> u64 {
    briefly(|| {
        unit(flags)?;
        // SAFETY: the manager is the calling thread's.
        Ok(unsafe { mine()?.now(flags) })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_htimer_next(deadline: *mut u64, flags: u32) -> c_int {
    briefly(|| {
        if deadline.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for the place of a deadline"));
        }
        unit(flags)?;
        // SAFETY: the manager is the calling thread's.
        let Some(next) = (unsafe { next(mine()?, flags) }) else { return Ok(0) };
        // SAFETY: the caller passes a place for the deadline.
        unsafe { deadline.write(next) };
        Ok(1)
    })
}
