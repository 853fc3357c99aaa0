//! Pools of untyped memory.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{FreeError, RawBlock, RawLocal, RawPool};
use stillpoint::pool::{BuildError, PoolBuilder};
use stillpoint_sys::{os, tsan};

use crate::border::{briefly, call, Refusal};
use crate::handle::{self, find, is_unused, kind, peek, sized, versioned, Parts, Place};
use crate::reserve::closed;
use crate::thread_end::{adopt, disown};

/// A pool, to C.
#[repr(C)]
pub struct still_pool {
    _private: [u8; 0],
}

/// One thread's access, to C.
#[repr(C)]
pub struct still_local {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_pool_options {
    size: usize,
    max_objects: usize,
    growth_step: usize,
    bucket_bytes: usize,
    stride: usize,
    cache: usize,
    max_locals: u32,
    pages: u32,
    hardened: u32,
    node: u32,
    memory: *mut c_void,
    memory_bytes: usize,
    high_water: usize,
    count_calls: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_layout {
    size: usize,
    capacity: usize,
    bytes: usize,
    bucket_bytes: usize,
    objects: usize,
    stride: usize,
    shift: usize,
}

#[repr(C)]
pub struct still_block {
    start: *mut c_void,
    objects: usize,
    stride: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_pool_info {
    size: usize,
    capacity: usize,
    available: usize,
    in_use: usize,
    misuses: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_pool_calls {
    size: usize,
    gets: usize,
    got: usize,
    failed_gets: usize,
    not_got: usize,
    puts: usize,
    put: usize,
    failed_puts: usize,
    block_gets: usize,
    failed_block_gets: usize,
    block_puts: usize,
    failed_block_puts: usize,
}

// SAFETY: numbers, and in the options a pointer that may be null.
versioned!(unsafe still_pool_calls: 96, still_pool_options: 80, still_layout: 56, still_pool_info: 32);

pub(crate) struct Pool(Arc<RawPool>);

kind!(Pool: still_pool, 0x5d0a_0009, "a pool");

pub(crate) struct Local {
    /// Borrows from `_pool`, so it must be dropped first.
    local: RawLocal<'static>,
    /// The owner, by its handle, which works until the very end of a thread. `None` once the local is detached.
    thread: Cell<Option<usize>>,
    _pool: Arc<RawPool>,
}

kind!(Local: still_local, 0x5d0a_000a, "a local of a pool");

#[no_mangle]
pub unsafe extern "C" fn still_pool_new(
    capacity: usize,
    bytes: usize,
    align: usize,
    options: *const still_pool_options,
) -> *mut still_pool {
    call(|| {
        // SAFETY: the caller passes options, and promises that the memory in them belongs to the pool until the pool is freed.
        let builder = unsafe { configured(capacity, bytes, align, options) }?;
        handle::make(|| Ok((Pool(Arc::new(builder.build().map_err(not_built)?)), Parts::default())))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_pool_layout(
    capacity: usize,
    bytes: usize,
    align: usize,
    options: *const still_pool_options,
    layout: *mut still_layout,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes options. No pool is built, so nothing uses memory in them.
        let info = unsafe { configured(capacity, bytes, align, options) }?.info().map_err(not_built)?;
        let answer = still_layout {
            size: size_of::<still_layout>(),
            capacity: info.max_objects,
            bytes: info.max_objects / info.objects_per_block * info.bucket_bytes,
            bucket_bytes: info.bucket_bytes,
            objects: info.objects_per_block,
            stride: info.stride,
            shift: info.shift,
        };
        // SAFETY: the caller passes a place of the size that it says.
        unsafe { Place::of(layout) }?.write(answer);
        Ok(0)
    })
}

#[cold]
fn not_built(error: BuildError) -> Refusal {
    let (errno, otherwise) = match error {
        BuildError::Memory { .. } => (libc::ENOMEM, c"there is no memory for the pool: make it smaller"),
        BuildError::ReservedPages(_) => (
            libc::ENOMEM,
            c"there are not enough reserved huge pages: raise vm.nr_hugepages, or allow other pages; before Linux 5.14, set no node",
        ),
        _ => (libc::EINVAL, c"a pool with these numbers is impossible"),
    };
    Refusal::told(errno, format_args!("{error}"), otherwise)
}

/// # Safety
/// `options` is null, or points to options. The memory in them belongs to the pool until the pool is freed.
unsafe fn configured(
    capacity: usize,
    bytes: usize,
    align: usize,
    options: *const still_pool_options,
) -> Result<PoolBuilder<RawPool>, Refusal> {
    let builder = RawPool::builder(capacity, bytes, align);
    if options.is_null() {
        return Ok(builder);
    }
    // SAFETY: the caller passes options, and makes the promise about their memory.
    unsafe { configure(builder, &sized(options)?) }
}

/// # Safety
/// The memory in the options belongs to the pool until the pool is freed.
unsafe fn configure(
    mut builder: PoolBuilder<RawPool>,
    options: &still_pool_options,
) -> Result<PoolBuilder<RawPool>, Refusal> {
    if options.max_objects > 0 {
        builder = builder.max_objects(options.max_objects);
    }
    if options.growth_step > 0 {
        builder = builder.growth_step(options.growth_step);
    }
    if options.bucket_bytes > 0 {
        builder = builder.bucket_bytes(options.bucket_bytes);
    }
    if options.stride > 0 {
        builder = builder.stride(options.stride);
    }
    builder = match options.cache {
        0 => builder,
        usize::MAX => builder.cache(0),
        objects => builder.cache(objects),
    };
    builder = match options.high_water {
        0 => builder,
        usize::MAX => builder.high_water(0),
        buckets => builder.high_water(u32::try_from(buckets).unwrap_or(u32::MAX)),
    };
    if options.max_locals > 0 {
        builder = builder.max_locals(options.max_locals as usize);
    }
    builder = builder.pages(match options.pages {
        0 => Pages::Best,
        1 => Pages::Reserved,
        2 => Pages::Transparent,
        3 => Pages::Small,
        other => {
            let text =
                c"there is no still_pages {}: set `pages` to STILL_PAGES_BEST, _RESERVED, _TRANSPARENT or _SMALL";
            return Err(Refusal::invalid(text).with(other));
        }
    });
    is_unused::<still_pool_options>(options.reserved)?;
    builder = builder.hardened(options.hardened != 0).count_calls(options.count_calls != 0);
    if let Some(node) = options.node.checked_sub(1) {
        builder = builder.node(node);
    }
    match NonNull::new(options.memory) {
        None => Ok(builder),
        // SAFETY: the memory belongs to the pool until the pool is freed, by the caller's promise.
        Some(start) => Ok(unsafe { builder.memory(start.cast(), options.memory_bytes, || {}) }),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_pool_free(pool: *mut still_pool) -> isize {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Pool>(pool) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        let shared = &unsafe { found.value() }.0;
        if Arc::strong_count(shared) > 1 {
            return Err(Refusal::new(libc::EBUSY, c"threads still have locals of the pool: free them first"));
        }
        // Acquire: pairs with the release by which a thread that ended has let the pool go: its counts come before.
        fence(Ordering::Acquire);
        let out = shared.stats().in_use;
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        Ok(out as isize)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_new(pool: *mut still_pool) -> *mut still_local {
    call(|| {
        // SAFETY: the caller passes a handle.
        let pool = Arc::clone(&unsafe { find::<Pool>(pool)?.value() }.0);
        let build = || {
            let text =
                c"as many threads have locals of the pool as may have one: free one, or raise max_locals";
            // What the pool makes for a local stays even if this call fails. So it must not come from the reserve.
            let local = closed(|| pool.try_local()).map_err(|_| Refusal::new(libc::EAGAIN, text))?;
            let local = local.ok_or(Refusal::no_memory(c"there is no memory for the cache of a local"))?;
            // SAFETY: the `Arc` keeps the pool in its place, and the local is dropped before the `Arc`.
            let local = unsafe { std::mem::transmute::<RawLocal<'_>, RawLocal<'static>>(local) };
            Ok((Local { local, thread: Cell::new(Some(os::thread_handle())), _pool: pool }, Parts::default()))
        };
        adopt::<Local>(handle::make(build)?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_free(local: *mut still_local) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Local>(local) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        if unsafe { found.value() }.is_owned()? {
            disown(local.cast());
        }
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        Ok(0)
    })
}

impl Local {
    /// Whether the calling thread owns it: false if no thread does.
    ///
    /// # Errors
    /// When another thread owns it.
    fn is_owned(&self) -> Result<bool, Refusal> {
        let Some(owner) = self.thread.get() else { return Ok(false) };
        if owner == os::thread_handle() {
            return Ok(true);
        }
        let text = c"the local belongs to the thread that made it, and this is another thread";
        Err(Refusal::new(libc::EPERM, text))
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_local_detach(local: *mut still_local) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, on its thread.
        let found = unsafe { find::<Local>(local)?.value() };
        if found.is_owned()? {
            disown(local.cast());
            found.thread.set(None);
        }
        Ok(0)
    })
}

unsafe fn local<'l>(local: *const still_local) -> Result<&'l RawLocal<'static>, Refusal> {
    // SAFETY: the caller passes a handle, on its thread.
    Ok(&unsafe { find::<Local>(local)?.value() }.local)
}

/// As [`local`], for what has no panic to catch, nothing to refuse, and nothing to report to ThreadSanitizer: such a call is a few
/// instructions, and needs no stack frame.
///
/// # Safety
/// As for [`find`].
#[inline(always)]
unsafe fn quickly<'l>(local: *const still_local) -> Option<&'l RawLocal<'static>> {
    if tsan::is_there() {
        return None;
    }
    // SAFETY: the caller passes a handle, on its thread.
    unsafe { Some(&peek::<Local>(local)?.value().local) }
}

fn exhausted() -> Refusal {
    Refusal::no_memory(
        c"the pool has too few free objects, or no whole free bucket: put objects back, or make it larger; \
          the caches of other threads' locals do not count",
    )
}

fn refused(error: FreeError) -> Refusal {
    let (errno, why) = reason(error);
    Refusal::new(errno, c"object {} of this call was not put back: {}").with(error.index()).with(why)
}

fn reason(error: FreeError) -> (c_int, &'static &'static str) {
    match error {
        FreeError::AlreadyFree(_) => {
            (libc::EALREADY, &"it is free already: find the call that put it back before")
        }
        FreeError::NotAnObject(_) => (libc::EINVAL, &"no object begins at its address"),
        _ => (libc::EINVAL, &"its address is outside the pool: put it back to the pool that it came from"),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_local_get(handle: *mut still_local) -> *mut c_void {
    // SAFETY: the caller passes a handle, on its thread.
    match unsafe { quickly(handle) }.and_then(RawLocal::alloc_from_cache) {
        Some(object) => object.as_ptr().cast(),
        // SAFETY: by the promises of the caller of this function.
        None => unsafe { get_slowly(handle) },
    }
}

#[inline(never)]
unsafe extern "C" fn get_slowly(handle: *mut still_local) -> *mut c_void {
    briefly(|| {
        // SAFETY: the caller passes a handle, on its thread.
        let object = unsafe { local(handle) }?.alloc().ok_or_else(exhausted)?.as_ptr();
        tsan::acquire(object);
        Ok(object.cast())
    })
}

/// A slice from C. If `count` is 0, it is empty for any `start`.
unsafe fn slice<'s, T>(start: *mut T, count: usize) -> Result<&'s mut [T], Refusal> {
    match NonNull::new(start) {
        _ if count == 0 => Ok(&mut []),
        _ if count > isize::MAX as usize / size_of::<T>() => {
            let text = c"an array of {} elements is larger than the memory of a process";
            Err(Refusal::invalid(text).with(count))
        }
        None => Err(Refusal::invalid(c"NULL was passed for an array")),
        // SAFETY: the caller promises that there are `count` elements at `start`.
        Some(start) => Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count) }),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_local_get_many(
    handle: *mut still_local,
    objects: *mut *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller passes a handle, on its thread, and room for `count` addresses.
    if let (Some(local), Ok(to)) = unsafe { (quickly(handle), slice(objects.cast(), count)) } {
        if local.alloc_many_from_cache(to) {
            return 0;
        }
    }
    // SAFETY: by the promises of the caller of this function.
    unsafe { get_many_slowly(handle, objects, count) }
}

#[inline(never)]
unsafe extern "C" fn get_many_slowly(
    handle: *mut still_local,
    objects: *mut *mut c_void,
    count: usize,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle, on its thread, and room for `count` addresses.
        let (local, to) =
            unsafe { (local(handle)?, slice(objects.cast::<MaybeUninit<NonNull<u8>>>(), count)?) };
        let objects = local.alloc_many(to).map_err(|_| exhausted())?;
        if tsan::is_there() {
            objects.iter().for_each(|object| tsan::acquire(object.as_ptr()));
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_put(handle: *mut still_local, object: *mut c_void) -> c_int {
    // SAFETY: the caller passes a handle, on its thread.
    if let (Some(local), Some(object)) = (unsafe { quickly(handle) }, NonNull::new(object.cast())) {
        // SAFETY: the caller does not use the object any more.
        if unsafe { local.free_to_cache(object) } {
            return 0;
        }
    }
    // SAFETY: by the promises of the caller of this function.
    unsafe { put_slowly(handle, object) }
}

#[inline(never)]
unsafe extern "C" fn put_slowly(handle: *mut still_local, object: *mut c_void) -> c_int {
    briefly(|| {
        let object = NonNull::new(object.cast()).ok_or_else(|| Refusal::invalid(c"NULL was put back"))?;
        tsan::release(object.as_ptr());
        // SAFETY: the caller passes a handle, on its thread, and does not use the object any more.
        unsafe { local(handle)?.free(object) }.map(|()| 0).map_err(refused)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_put_many(
    handle: *mut still_local,
    objects: *const *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller passes a handle, on its thread, and `count` addresses.
    let usual = unsafe { (quickly(handle), slice(objects.cast_mut().cast::<*mut u8>(), count)) };
    if let (Some(local), Ok(objects)) = usual {
        // SAFETY: the caller does not use the objects any more.
        if unsafe { local.free_many_to_cache(objects) } {
            return 0;
        }
    }
    // SAFETY: by the promises of the caller of this function.
    unsafe { put_many_slowly(handle, objects, count) }
}

#[inline(never)]
unsafe extern "C" fn put_many_slowly(
    handle: *mut still_local,
    objects: *const *mut c_void,
    count: usize,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle, on its thread, and `count` addresses.
        let (local, objects) = unsafe { (local(handle)?, slice(objects.cast_mut(), count)?) };
        let before_null = objects.iter().position(|object| object.is_null()).unwrap_or(count);
        // SAFETY: these addresses of the slice are not null, and `NonNull` has the layout of a pointer.
        let objects =
            unsafe { std::slice::from_raw_parts(objects.as_ptr().cast::<NonNull<u8>>(), before_null) };
        if tsan::is_there() {
            objects.iter().for_each(|object| tsan::release(object.as_ptr()));
        }
        // SAFETY: the caller does not use the objects any more.
        unsafe { local.free_many(objects) }.map_err(refused)?;
        if before_null < count {
            return Err(Refusal::invalid(c"NULL was put back"));
        }
        Ok(0)
    })
}

/// The addresses of a block's objects; none without ThreadSanitizer.
fn objects_of(block: RawBlock) -> impl Iterator<Item = *const u8> {
    let count = if tsan::is_there() { block.len() } else { 0 };
    (0..count).map(move |index| block.start().as_ptr().cast_const().wrapping_add(index * block.stride()))
}

fn place<T>(place: *const T) -> Result<(), Refusal> {
    match place.is_null() {
        true => Err(Refusal::invalid(c"NULL was passed for a block")),
        false => Ok(()),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_local_get_block(handle: *mut still_local, block: *mut still_block) -> c_int {
    briefly(|| {
        place(block)?;
        // SAFETY: the caller passes a handle, on its thread.
        let found = unsafe { local(handle) }?.alloc_block().ok_or_else(exhausted)?;
        objects_of(found).for_each(tsan::acquire);
        let answer = still_block {
            start: found.start().as_ptr().cast(),
            objects: found.len(),
            stride: found.stride(),
        };
        // SAFETY: the caller passes a place for the block.
        unsafe { block.write(answer) };
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_get_blocks(
    handle: *mut still_local,
    starts: *mut *mut c_void,
    count: usize,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle, on its thread, and room for `count` addresses.
        let (local, starts) =
            unsafe { (local(handle)?, slice(starts.cast::<MaybeUninit<*mut c_void>>(), count)?) };
        for got in 0..count {
            let Some(block) = local.alloc_block_of(count - got) else {
                // SAFETY: written below, and allocated by this call.
                let start = |start: &MaybeUninit<*mut c_void>| unsafe {
                    NonNull::new_unchecked(start.assume_init().cast())
                };
                // SAFETY: allocated by this call, and nothing has their addresses.
                unsafe { local.put_back_blocks(starts[..got].iter().map(start)) };
                return Err(exhausted());
            };
            objects_of(block).for_each(tsan::acquire);
            starts[got].write(block.start().as_ptr().cast());
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_local_put_block(handle: *mut still_local, block: *const still_block) -> c_int {
    briefly(|| {
        place(block)?;
        // SAFETY: the caller passes a block.
        let still_block { start, objects, stride } = unsafe { block.read() };
        // SAFETY: the caller passes a handle, on its thread.
        let local = unsafe { local(handle) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Refusal::invalid(c"NULL was put back"))?;
        let block = local.block_at(start);
        if (objects, stride) != (block.len(), block.stride()) {
            return Err(Refusal::invalid(
                c"it is no whole block: blocks of the pool have {} objects with stride {}; put its objects back one by one",
            )
            .with(block.len())
            .with(block.stride()));
        }
        objects_of(block).for_each(tsan::release);
        // SAFETY: the caller does not use the objects any more.
        unsafe { local.free_block(block) }.map(|()| 0).map_err(|error| {
            let (errno, why) = reason(error);
            let text = c"nothing of the block was put back, because of object {}: {}";
            Refusal::new(errno, text).with(error.index()).with(why)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_pool_stats(pool: *const still_pool, stats: *mut still_pool_info) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and a place of the size that it says.
        let (pool, place) = unsafe { (find::<Pool>(pool)?.value(), Place::of(stats)?) };
        let found = pool.0.stats();
        let answer = still_pool_info {
            size: size_of::<still_pool_info>(),
            capacity: found.capacity,
            available: found.available,
            in_use: found.in_use,
            misuses: found.misuses,
        };
        place.write(answer);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_pool_call_stats(
    pool: *const still_pool,
    calls: *mut still_pool_calls,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and a place of the size that it says.
        let (pool, place) = unsafe { (find::<Pool>(pool)?.value(), Place::of(calls)?) };
        let found = pool.0.call_stats();
        place.write(still_pool_calls {
            size: size_of::<still_pool_calls>(),
            gets: found.gets,
            got: found.got,
            failed_gets: found.failed_gets,
            not_got: found.not_got,
            puts: found.puts,
            put: found.put,
            failed_puts: found.failed_puts,
            block_gets: found.block_gets,
            failed_block_gets: found.failed_block_gets,
            block_puts: found.block_puts,
            failed_block_puts: found.failed_block_puts,
        });
        Ok(0)
    })
}
