use std::sync::atomic::{AtomicPtr, Ordering};

use stillpoint::pool::{Obj, Pool};

/// Keeps its argument for ever.
static KEPT: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

fn keep(name: &'static String) -> usize {
    KEPT.store(std::ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
    name.len()
}

/// If it compiled, the pool would hand out a function that keeps its argument as one that does not.
fn main() {
    let pool = Pool::<for<'a> fn(&'a String) -> usize>::new(1, || String::len).unwrap();
    let local = pool.local().unwrap();
    let mut object: Obj<'_, fn(&'static String) -> usize> = local.alloc().unwrap();
    *object = keep;
    drop(object);
    local.alloc().unwrap()(&String::from("short"));
}
