//! `call_rcu` and the functions of its workers.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use stillpoint::rcu::raw::Callback;

use super::super::flavour::of;
use super::{call_rcu_data, rcu_head, Worker};
use crate::border::{briefly, call, Refusal};
use crate::own::own;

#[no_mangle]
pub unsafe extern "C" fn still_urcu_call_(
    flavour: u32,
    head: *mut rcu_head,
    function: Option<unsafe extern "C-unwind" fn(head: *mut rcu_head)>,
) {
    briefly(|| {
        let (Some(head), Some(function)) = (NonNull::new(head), function) else {
            return Err(Refusal::invalid(c"urcu-{}: NULL was passed to call_rcu").with(of(flavour).name()));
        };
        // SAFETY: the two types of function pointers have the same layout, and the queue never passes null.
        let function = unsafe {
            std::mem::transmute::<
                unsafe extern "C-unwind" fn(*mut rcu_head),
                unsafe extern "C-unwind" fn(NonNull<Callback>),
            >(function)
        };
        // SAFETY: the caller gives the head to the worker, and promises that the function may be called with it.
        unsafe { of(flavour).worker().push(head.cast(), function) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_new_(flavour: u32, _flags: u64, cpu: c_int) -> *mut call_rcu_data {
    call(|| Ok(of(flavour).make_worker(cpu)?.to_c()))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_free_(flavour: u32, worker: *mut call_rcu_data) {
    call(|| match worker.is_null() {
        true => Ok(()),
        false => of(flavour).free_worker(worker),
    });
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_worker_thread_(worker: *mut call_rcu_data) -> u64 {
    call(|| {
        // SAFETY: `worker` is null or the address of a worker, by the caller's promise, and the memory of workers is never freed.
        let worker = unsafe { worker.cast::<Worker>().as_ref() };
        let worker = worker.ok_or_else(|| Refusal::invalid(c"NULL was passed for a worker"))?;
        worker.has_thread();
        Ok(worker.pthread.load(Ordering::Relaxed))
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_default_(flavour: u32) -> *mut call_rcu_data {
    call(|| {
        let worker = of(flavour).default_worker();
        worker.has_thread();
        Ok(worker.to_c())
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_of_cpu_(flavour: u32, cpu: c_int) -> *mut call_rcu_data {
    briefly(|| Ok(of(flavour).of_cpu(cpu).map_or(ptr::null_mut(), Worker::to_c)))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_of_thread_(flavour: u32) -> *mut call_rcu_data {
    briefly(|| Ok(of(flavour).own_worker().map_or(ptr::null_mut(), Worker::to_c)))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_(flavour: u32) -> *mut call_rcu_data {
    call(|| {
        let worker = of(flavour).worker();
        worker.has_thread();
        Ok(worker.to_c())
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_set_worker_of_thread_(flavour: u32, worker: *mut call_rcu_data) {
    briefly(|| {
        own();
        // SAFETY: the thread has its block.
        unsafe { (*of(flavour).mine()).worker = worker.cast::<c_void>() };
        Ok(())
    });
}

/// Returns the negative error number, and sets `errno`, as liburcu does.
fn answer(answer: Result<(), Refusal>) -> Result<c_int, Refusal> {
    if let Err(refusal) = &answer {
        // SAFETY: the address belongs to the calling thread.
        unsafe { *libc::__errno_location() = refusal.errno };
    }
    answer.map(|()| 0)
}

#[no_mangle]
pub extern "C" fn still_urcu_set_worker_of_cpu_(
    flavour: u32,
    cpu: c_int,
    worker: *mut call_rcu_data,
) -> c_int {
    call(|| answer(of(flavour).set_of_cpu(cpu, worker)))
}

#[no_mangle]
pub extern "C" fn still_urcu_workers_new_(flavour: u32, _flags: u64) -> c_int {
    call(|| {
        let flavour = of(flavour);
        // The list is made under the lock, which no other thread holds at a fork.
        let cpus = {
            let _lock = flavour.lock();
            flavour.cpus().len()
        };
        for cpu in 0..cpus as c_int {
            if flavour.of_cpu(cpu).is_some() {
                continue;
            }
            let made = match flavour.make_worker(cpu) {
                Ok(worker) => worker.to_c(),
                Err(refusal) => return answer(Err(refusal)),
            };
            if let Err(refusal) = flavour.set_of_cpu(cpu, made) {
                flavour.free_worker(made)?;
                // With EEXIST, another thread has set the CPU's worker meanwhile.
                if refusal.errno != libc::EEXIST {
                    return answer(Err(refusal));
                }
            }
        }
        Ok(0)
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_workers_free_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(places) = flavour.shared.of_cpus.get() else { return Ok(()) };
        // Acquire: pairs with the release in `set_of_cpu`, because the worker is used.
        let workers: Vec<_> =
            places.iter().map(|place| place.swap(ptr::null_mut(), Ordering::AcqRel)).collect();
        // No grace period is needed: a thread that still pushes to one of the workers finds its door closed, and uses the default worker.
        let mut answer = Ok(());
        for worker in workers.into_iter().filter(|worker| !worker.is_null()) {
            answer = answer.and(flavour.free_worker(worker.cast()));
        }
        answer
    });
}
