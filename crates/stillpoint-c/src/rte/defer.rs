//! Defer queues, which hold copies of elements, each with its token.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::answered;
use super::block::Reclaim;
use super::qsbr::{rte_rcu_qsbr, Variable};
use crate::border::{Refusal, Uncancelled};
use crate::own::{self, own};
use crate::reserve;

pub type rte_rcu_qsbr_free_resource_t =
    Option<unsafe extern "C-unwind" fn(p: *mut c_void, e: *mut c_void, n: c_uint)>;

#[repr(C)]
pub struct rte_rcu_qsbr_dq_parameters {
    pub name: *const c_char,
    pub flags: u32,
    pub size: u32,
    pub esize: u32,
    pub trigger_reclaim_limit: u32,
    pub max_reclaim_size: u32,
    pub free_fn: rte_rcu_qsbr_free_resource_t,
    pub p: *mut c_void,
    pub v: *mut rte_rcu_qsbr,
}

/// A defer queue, to C.
#[repr(C)]
pub struct rte_rcu_qsbr_dq {
    _private: [u8; 0],
}

pub(crate) struct Queue {
    /// For each element, its token and the words of its copy. The memory never grows.
    words: Mutex<VecDeque<u64>>,
    /// The name, for messages.
    name: String,
    capacity: usize,
    bytes: usize,
    /// An enqueue reclaims if the queue has more words than this.
    trigger: usize,
    most: c_uint,
    free: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_uint),
    context: *mut c_void,
    variable: Variable,
}

/// The greatest size of an element, in words, for which freeing allocates nothing.
const SHORT: usize = 16;
const WORD: usize = size_of::<u64>();

impl Queue {
    /// # Safety
    /// The variable, the function and its context are as the header requires, as long as the queue lives.
    unsafe fn new(parameters: &rte_rcu_qsbr_dq_parameters) -> Result<Self, Refusal> {
        let rte_rcu_qsbr_dq_parameters { name, size, esize, trigger_reclaim_limit, max_reclaim_size, .. } =
            *parameters;
        let free = parameters.free_fn.ok_or_else(|| {
            Refusal::invalid(c"`free_fn` is NULL: a defer queue needs a function that frees its elements")
        })?;
        // SAFETY: the variable is valid as long as the queue lives, by the caller's promise.
        let variable = unsafe { Variable::new(parameters.v) }?;
        if name.is_null() {
            return Err(Refusal::invalid(c"`name` is NULL: a defer queue needs a string"));
        }
        if size == 0 || esize == 0 || esize % 4 != 0 {
            let text =
                c"`size` is {}, and `esize` {}: a defer queue has a size of at least 1, and an esize of 4, 8, 12, ... bytes";
            return Err(Refusal::invalid(text).with(size).with(esize));
        }
        if trigger_reclaim_limit <= size && max_reclaim_size == 0 {
            let text = c"`max_reclaim_size` is 0, but an enqueue reclaims: set it to at least 1, or \
                         `trigger_reclaim_limit`, which is {}, to more than `size`, which is {}";
            return Err(Refusal::invalid(text).with(trigger_reclaim_limit).with(size));
        }
        let capacity = (size as usize + 1).next_power_of_two() - 1;
        let bytes = esize as usize;
        let stride = 1 + bytes.div_ceil(WORD);
        let mut words = VecDeque::new();
        capacity
            .checked_mul(stride)
            .and_then(|count| words.try_reserve_exact(count).ok())
            .ok_or_else(|| Refusal::no_memory(c"there is no memory for the defer queue"))?;
        Ok(Self {
            words: Mutex::new(words),
            // SAFETY: the caller passes a string.
            name: unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            capacity,
            bytes,
            // Above `size`: never, although the capacity is larger.
            trigger: if trigger_reclaim_limit > size {
                usize::MAX
            } else {
                trigger_reclaim_limit as usize * stride
            },
            most: max_reclaim_size,
            free,
            context: parameters.p,
            variable,
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stride(&self) -> usize {
        1 + self.bytes.div_ceil(WORD)
    }

    /// # Safety
    /// The element has `self.bytes` bytes.
    unsafe fn enqueue(&self, element: *const u8) -> Result<(), Refusal> {
        // The element is unlinked already, so a token that is started now covers the unlink, and need not wait for the reclaim below.
        let token = self.variable.start();
        let mut words = self.lock();
        if words.len() > self.trigger && !self.is_reclaimed_here() {
            drop(words);
            self.reclaim(self.most);
            words = self.lock();
        }
        if words.len() == self.capacity * self.stride() {
            let otherwise =
                c"the defer queue is full: reclaim some after readers have reported, or make it larger";
            return Err(Refusal::told(
                libc::ENOSPC,
                format_args!(
                    "the defer queue {} is full: it has {} elements; reclaim some after readers have reported, or make it larger",
                    self.name, self.capacity
                ),
                otherwise,
            ));
        }
        words.push_back(token);
        for at in (0..self.bytes).step_by(WORD) {
            let mut word = 0u64;
            // SAFETY: the copied bytes lie within the element, and are at most a word.
            unsafe {
                let length = WORD.min(self.bytes - at);
                element.add(at).copy_to_nonoverlapping((&raw mut word).cast(), length);
            }
            words.push_back(word);
        }
        Ok(())
    }

    /// Whether a free function of this queue has called the caller, perhaps by way of another queue's.
    fn is_reclaimed_here(&self) -> bool {
        let mut call = own::find().map_or(ptr::null(), |own| own.reclaiming.get());
        // SAFETY: only the thread of a call reaches the call, and only until the call ends.
        while let Some(Reclaim { queue, outer }) = unsafe { call.as_ref() } {
            if *queue == ptr::from_ref(self).cast() {
                return true;
            }
            call = *outer;
        }
        false
    }

    /// Removes the first element if its grace period is over, and copies it.
    fn take(&self, copy: &mut [MaybeUninit<u64>]) -> bool {
        let mut words = self.lock();
        let Some(&token) = words.front() else { return false };
        if !self.variable.is_over(token) {
            return false;
        }
        words.pop_front();
        copy.iter_mut().zip(words.drain(..self.stride() - 1)).for_each(|(place, word)| _ = place.write(word));
        true
    }

    fn reclaim(&self, most: c_uint) -> c_uint {
        // The program's function may reach cancellation points.
        let _whole = Uncancelled::new();
        let (mut short, mut long);
        let copy: &mut [MaybeUninit<u64>] = match self.stride() - 1 {
            length @ ..=SHORT => {
                short = [MaybeUninit::uninit(); SHORT];
                &mut short[..length]
            }
            length => {
                // Not zeroed: the reserve has no zeroed memory.
                long = Box::new_uninit_slice(length);
                &mut long
            }
        };
        let mut freed = 0;
        let own = own();
        let call = Reclaim { queue: ptr::from_ref(self).cast(), outer: own.reclaiming.get() };
        own.reclaiming.set(&call);
        while freed < most && self.take(copy) {
            // SAFETY: the program's function is called with its context and a copy of the element, and no lock is held.
            unsafe { (self.free)(self.context, copy.as_mut_ptr().cast(), 1) };
            freed += 1;
        }
        freed
    }
}

/// Also if the program's function unwinds.
impl Drop for Reclaim {
    fn drop(&mut self) {
        own().reclaiming.set(self.outer);
    }
}

/// # Safety
/// `queue` is NULL, or a queue from [`still_rte_rcu_qsbr_dq_create`] that is not deleted meanwhile.
unsafe fn queue<'q>(queue: *const rte_rcu_qsbr_dq) -> Result<&'q Queue, Refusal> {
    // SAFETY: the queue is NULL, or not deleted meanwhile, by the caller's promise.
    unsafe { queue.cast::<Queue>().as_ref() }
        .ok_or_else(|| Refusal::invalid(c"NULL was passed for a defer queue"))
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_dq_create(
    params: *const rte_rcu_qsbr_dq_parameters,
) -> *mut rte_rcu_qsbr_dq {
    answered(|| {
        // SAFETY: the caller passes parameters.
        let parameters = unsafe { params.as_ref() };
        let parameters =
            parameters.ok_or_else(|| Refusal::invalid(c"NULL was passed for parameters of a queue"))?;
        // SAFETY: the caller promises what the header requires of the parameters.
        let made = reserve::kept(|| unsafe { Queue::new(parameters) }.map(Box::new))?;
        Ok(Box::into_raw(made).cast())
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_dq_enqueue(dq: *mut rte_rcu_qsbr_dq, e: *mut c_void) -> c_int {
    answered(|| {
        // SAFETY: the caller passes a queue.
        let queue = unsafe { queue(dq) }?;
        if e.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for an element"));
        }
        // SAFETY: the caller passes an element of this queue.
        unsafe { queue.enqueue(e.cast()) }.map(|()| 0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_dq_reclaim(
    dq: *mut rte_rcu_qsbr_dq,
    n: c_uint,
    freed: *mut c_uint,
    pending: *mut c_uint,
    available: *mut c_uint,
) -> c_int {
    answered(|| {
        // SAFETY: the caller passes a queue.
        let queue = unsafe { queue(dq) }?;
        if n == 0 {
            return Err(Refusal::invalid(c"n is 0: reclaim at least 1 element"));
        }
        let count = queue.reclaim(n);
        let left = queue.lock().len() / queue.stride();
        for (place, value) in
            [(freed, count), (pending, left as c_uint), (available, (queue.capacity - left) as c_uint)]
        {
            // SAFETY: the caller passes places for the numbers, or NULL.
            if let Some(place) = unsafe { place.as_mut() } {
                *place = value;
            }
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_rcu_qsbr_dq_delete(dq: *mut rte_rcu_qsbr_dq) -> c_int {
    answered(|| {
        if dq.is_null() {
            return Ok(0);
        }
        // SAFETY: the caller passes a queue.
        let found = unsafe { queue(dq) }?;
        found.reclaim(c_uint::MAX);
        if !found.lock().is_empty() {
            let otherwise = c"elements of the defer queue wait for readers: delete it again later";
            return Err(Refusal::told(
                libc::EAGAIN,
                format_args!(
                    "elements of the defer queue {} wait for readers: delete it again later",
                    found.name
                ),
                otherwise,
            ));
        }
        // SAFETY: `still_rte_rcu_qsbr_dq_create` made the queue, and no other thread uses it.
        drop(unsafe { Box::from_raw(dq.cast::<Queue>()) });
        Ok(0)
    })
}
