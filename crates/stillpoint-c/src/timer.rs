//! Timer wheels whose timers lie in structs of the program.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

use stillpoint::timer::{Node, NodeWheel, Schedule};

use crate::border::{briefly, Refusal};
use crate::handle::{self, find, kind, Parts};

/// A timer, to C.
#[repr(C)]
pub struct still_timer {
    words_: [u64; 4],
}

const _: () =
    assert!(size_of::<still_timer>() == size_of::<Node>() && align_of::<still_timer>() == align_of::<Node>());

/// A wheel, to C.
#[repr(C)]
pub struct still_wheel {
    _private: [u8; 0],
}

pub(crate) struct Wheel(UnsafeCell<NodeWheel>);

kind!(Wheel: still_wheel, 0x5d0a_0008, "a wheel");

/// Takes a node that is due, or moves a few nodes within the wheel: then there may be one that is due behind these. `moved` is `None` at
/// first, and says how far the last call has come.
pub(crate) fn pop_or_move(
    wheel: &mut NodeWheel,
    moved: &mut Option<u64>,
) -> ControlFlow<Option<NonNull<Node>>> {
    let found = wheel.pop();
    let so_far = wheel.stats().moved;
    // No node is due when a pop neither returns nor moves one.
    match found.is_some() || moved.replace(so_far) == Some(so_far) {
        true => ControlFlow::Break(found),
        false => ControlFlow::Continue(()),
    }
}

/// Takes a node that is due, however many are moved before.
pub(crate) fn pop_due(wheel: &mut NodeWheel) -> Option<NonNull<Node>> {
    let mut moved = None;
    loop {
        if let ControlFlow::Break(found) = pop_or_move(wheel, &mut moved) {
            return found;
        }
    }
}

/// Runs a call on a wheel. No such call calls the program back.
unsafe fn within<A>(
    wheel: *const still_wheel,
    action: impl FnOnce(&mut NodeWheel) -> A,
) -> Result<A, Refusal> {
    // SAFETY: the caller passes a handle.
    let found = unsafe { find::<Wheel>(wheel) }?;
    // SAFETY: by the header, one thread at a time uses the wheel, and no call on a wheel calls the program back.
    Ok(action(unsafe { &mut *found.value().0.get() }))
}

fn node(timer: *const still_timer) -> Result<NonNull<Node>, Refusal> {
    NonNull::new(timer.cast_mut().cast()).ok_or_else(|| Refusal::invalid(c"NULL was passed for a timer"))
}

fn timer(node: Option<NonNull<Node>>) -> *mut still_timer {
    node.map_or(ptr::null_mut(), |node| node.as_ptr().cast())
}

#[no_mangle]
pub extern "C" fn still_wheel_new(now: u64) -> *mut still_wheel {
    briefly(|| {
        let text = c"there is no memory for the lists of a wheel";
        handle::make(|| {
            let wheel = NodeWheel::try_new(now).map_err(|_| Refusal::no_memory(text))?;
            Ok((Wheel(UnsafeCell::new(wheel)), Parts::default()))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_free(wheel: *mut still_wheel) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { find::<Wheel>(wheel)?.free() });
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_timer_add(
    wheel: *mut still_wheel,
    timer: *mut still_timer,
    deadline: u64,
) -> c_int {
    briefly(|| {
        let node = node(timer)?;
        let add = |wheel: &mut NodeWheel| {
            // SAFETY: the caller promises that the timer is in this wheel or in none.
            if unsafe { wheel.contains(node) } {
                return Err(Refusal::new(libc::EEXIST, c"the timer is in a wheel already"));
            }
            // SAFETY: the caller promises that the timer does not move, and gives it to the wheel.
            unsafe { wheel.add(node, Schedule::at(deadline)) };
            Ok(0)
        };
        // SAFETY: the caller passes a handle.
        unsafe { within(wheel, add) }?
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_timer_cancel(wheel: *mut still_wheel, timer: *mut still_timer) -> c_int {
    briefly(|| {
        let node = node(timer)?;
        // SAFETY: the caller passes a handle, and a timer that is in this wheel or in none.
        unsafe { within(wheel, |wheel| c_int::from(wheel.cancel(node))) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_timer_reset(
    wheel: *mut still_wheel,
    timer: *mut still_timer,
    deadline: u64,
) -> c_int {
    briefly(|| {
        let node = node(timer)?;
        let reset = |wheel: &mut NodeWheel| {
            // SAFETY: the caller promises that the timer is in this wheel or in none.
            let was_there = unsafe { wheel.reset(node, deadline) };
            if !was_there {
                // SAFETY: the caller promises that the timer does not move, and gives it to the wheel.
                unsafe { wheel.add(node, Schedule::at(deadline)) };
            }
            c_int::from(was_there)
        };
        // SAFETY: the caller passes a handle.
        unsafe { within(wheel, reset) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_timer_is_pending(
    wheel: *const still_wheel,
    timer: *const still_timer,
) -> c_int {
    briefly(|| {
        let node = node(timer)?;
        // SAFETY: the caller passes a handle, and a timer that is in this wheel or in none.
        unsafe { within(wheel, |wheel| c_int::from(wheel.contains(node))) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_advance(wheel: *mut still_wheel, now: u64) -> c_int {
    // SAFETY: the caller passes a handle.
    briefly(|| unsafe { within(wheel, |wheel| wheel.advance(now)) }.map(|()| 0))
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_pop(wheel: *mut still_wheel) -> *mut still_timer {
    // SAFETY: the caller passes a handle.
    briefly(|| unsafe { within(wheel, |wheel| timer(wheel.pop())) })
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_take_any(wheel: *mut still_wheel) -> *mut still_timer {
    // SAFETY: the caller passes a handle.
    briefly(|| unsafe { within(wheel, |wheel| timer(wheel.take_any())) })
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_next_deadline(wheel: *const still_wheel, deadline: *mut u64) -> c_int {
    briefly(|| {
        if deadline.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for the place of a deadline"));
        }
        // SAFETY: the caller passes a handle.
        let next = unsafe { within(wheel, |wheel| wheel.next_deadline()) }?;
        let Some(next) = next else { return Ok(0) };
        // SAFETY: the caller passes a place for the deadline.
        unsafe { deadline.write(next) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_wheel_len(wheel: *const still_wheel) -> isize {
    // SAFETY: the caller passes a handle.
    briefly(|| unsafe { within(wheel, |wheel| wheel.len() as isize) })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::ptr::NonNull;

    use stillpoint::timer::{Node, NodeWheel, Schedule};

    use super::pop_or_move;

    /// Between two steps a list is unlocked: a step moves little, however many timers are in a slot.
    #[test]
    fn a_step_moves_a_few_timers() {
        const TIMERS: u64 = 20_000;
        let mut wheel = NodeWheel::new(0);
        let nodes: Vec<Node> = (0..TIMERS).map(|_| Node::new()).collect();
        for node in &nodes {
            // SAFETY: the node is in no wheel, and stays in place until the wheel is empty.
            unsafe { wheel.add(NonNull::from(node), Schedule::at(1 << 20)) };
        }
        wheel.advance((1 << 20) - 1);
        let (mut moved, mut steps, mut before) = (None, 0, wheel.stats().moved);
        while pop_or_move(&mut wheel, &mut moved) == ControlFlow::Continue(()) {
            let now = wheel.stats().moved;
            assert!(now - before <= 1_000, "a step has moved {} timers", now - before);
            (before, steps) = (now, steps + 1);
        }
        assert!(steps >= TIMERS / 1_000, "{steps} steps");
        wheel.advance(1 << 20);
        moved = None;
        for _ in 0..TIMERS {
            while pop_or_move(&mut wheel, &mut moved) == ControlFlow::Continue(()) {}
        }
        assert_eq!(wheel.len(), 0);
    }
}
