//! mimalloc, loaded while the program runs: linked in, it would become the allocator of every other contender.

use std::ffi::c_void;

use super::{OBJECT, PoolContender, PoolThread};

struct Mimalloc {
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

/// mimalloc as a pool without a limit.
///
/// # Errors
/// When the library cannot be loaded; a static program cannot load any.
pub fn mimalloc() -> Result<Box<dyn PoolContender>, String> {
    if cfg!(target_feature = "crt-static") {
        return Err("a static program cannot load mimalloc".to_owned());
    }
    let names = [c"libmimalloc.so", c"libmimalloc.so.2", c"libmimalloc.so.2.0", c"libmimalloc.so.3"];
    let library = names.iter().find_map(|name| {
        // SAFETY: a string; what the library does when it is loaded concerns itself.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    });
    let missing =
        || "mimalloc left out (it cannot be loaded): install libmimalloc-dev, then run again".to_owned();
    let library = library.ok_or_else(missing)?;
    // SAFETY: a library that was loaded and stays, and strings.
    let (allocate, free) =
        unsafe { (libc::dlsym(library, c"mi_malloc".as_ptr()), libc::dlsym(library, c"mi_free".as_ptr())) };
    if allocate.is_null() || free.is_null() {
        return Err(missing());
    }
    // SAFETY: the functions of these names have these types, by the library's header.
    unsafe {
        Ok(Box::new(Mimalloc {
            allocate: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(
                allocate,
            ),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(free),
        }))
    }
}

impl PoolContender for Mimalloc {
    fn name(&self) -> &'static str {
        "mimalloc"
    }

    fn note(&self) -> String {
        "no limit; one call for each object".to_owned()
    }

    fn thread(&self) -> Box<dyn PoolThread + '_> {
        Box::new(Thread(self))
    }
}

struct Thread<'m>(&'m Mimalloc);

impl PoolThread for Thread<'_> {
    #[inline(always)]
    fn get(&mut self, objects: &mut [*mut u8]) -> bool {
        // SAFETY: any size will do.
        objects.iter_mut().for_each(|object| *object = unsafe { (self.0.allocate)(OBJECT) }.cast());
        objects.iter().all(|object| !object.is_null())
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment gives back what it got.
        objects.iter().for_each(|object| unsafe { (self.0.free)(object.cast()) });
    }
}
