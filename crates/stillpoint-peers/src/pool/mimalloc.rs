//! mimalloc. It is loaded at run time: if it were linked in, it would become the allocator of every other contender.

use std::ffi::c_void;

use super::{OBJECT, PoolContender, PoolThread};

struct Mimalloc {
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

/// mimalloc as a pool without a limit.
///
/// # Errors
/// If the library cannot be loaded. A static program cannot load libraries.
pub fn mimalloc() -> Result<Box<dyn PoolContender>, String> {
    if cfg!(target_feature = "crt-static") {
        return Err("a static program cannot load mimalloc".to_owned());
    }
    let names = [c"libmimalloc.so", c"libmimalloc.so.2", c"libmimalloc.so.2.0", c"libmimalloc.so.3"];
    let library = names.iter().find_map(|name| {
        // SAFETY: the string ends with a zero. mimalloc's initialisers touch only its own state.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    });
    let missing =
        || "mimalloc left out (it cannot be loaded): install libmimalloc-dev, then run again".to_owned();
    let library = library.ok_or_else(missing)?;
    // SAFETY: `library` is a handle from `dlopen` that is never closed, and the strings end with a zero.
    let (allocate, free) =
        unsafe { (libc::dlsym(library, c"mi_malloc".as_ptr()), libc::dlsym(library, c"mi_free".as_ptr())) };
    if allocate.is_null() || free.is_null() {
        return Err(missing());
    }
    // SAFETY: mimalloc's header declares the functions of these names with these types.
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
        // SAFETY: `mi_malloc` accepts any size.
        objects.iter_mut().for_each(|object| *object = unsafe { (self.0.allocate)(OBJECT) }.cast());
        objects.iter().all(|object| !object.is_null())
    }

    #[inline(always)]
    fn put(&mut self, objects: &[*mut u8]) {
        // SAFETY: the experiment puts back only objects that it got from `mi_malloc`, each once.
        objects.iter().for_each(|object| unsafe { (self.0.free)(object.cast()) });
    }
}
