use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a link can point to: how it is made, found from one word, and freed.
///
/// Implemented for every sized type, whose objects are in boxes; for slices, whose length is in front of the elements, so
/// that a link is one word; and for [`InArc`].
///
/// ```
/// use stillpoint::rcu::{InArc, Owned};
/// use std::sync::Arc;
///
/// let number = Owned::new(7);
/// let numbers = Owned::<[u32]>::init(vec![1, 2, 3]);
/// let shared = Owned::<InArc<String>>::init(Arc::new(String::from("text")));
/// assert_eq!((*number, numbers.len(), shared.as_str()), (7, 3, "text"));
/// ```
///
/// # Safety
/// Addresses from `init` are multiples of `ALIGN`, a power of two. `target` refers to the object until `drop`. A pointee is
/// `Send` only if `drop` may be called on another thread than `init`, and `Sync` only if references from `target` may be
/// shared between threads.
pub unsafe trait Pointee {
    /// What references to the object show.
    type Target: ?Sized;
    /// What an object is made of.
    type Init;
    /// Addresses are multiples of this: as many tags are there.
    const ALIGN: usize;

    /// Makes an object, which the caller owns.
    fn init(init: Self::Init) -> NonNull<()>;

    /// The object.
    ///
    /// # Safety
    /// It came from `init`, is not dropped during `'a`, and nobody has it exclusively meanwhile.
    unsafe fn target<'a>(object: NonNull<()>) -> &'a Self::Target;

    /// Size of the object itself in bytes, without what it owns elsewhere.
    ///
    /// # Safety
    /// As for `target`.
    unsafe fn bytes(object: NonNull<()>) -> usize;

    /// Drops the object and frees its memory.
    ///
    /// # Safety
    /// It came from `init`, the caller owns it, and nobody uses it any more.
    unsafe fn drop(object: NonNull<()>);
}

// SAFETY: a box is aligned for its type, and a reference to its content is valid until the box is dropped.
unsafe impl<T> Pointee for T {
    type Target = T;
    type Init = T;
    const ALIGN: usize = align_of::<T>();

    fn init(init: T) -> NonNull<()> {
        NonNull::from(Box::leak(Box::new(init))).cast()
    }

    unsafe fn target<'a>(object: NonNull<()>) -> &'a T {
        // SAFETY: the caller's promise.
        unsafe { object.cast().as_ref() }
    }

    unsafe fn bytes(_object: NonNull<()>) -> usize {
        size_of::<T>()
    }

    unsafe fn drop(object: NonNull<()>) {
        // SAFETY: it came from a box in `init`, and is the caller's.
        drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
    }
}

/// Where the elements of a slice begin behind the length, and the layout of all.
fn slice_layout<T>(len: usize) -> (usize, Layout) {
    let elements = Layout::array::<T>(len).expect("a slice that exists has a layout");
    let (all, offset) = Layout::new::<usize>().extend(elements).expect("the length fits in front of a slice");
    (offset, all.pad_to_align())
}

/// # Safety
/// `object` came from `<[T]>::init`, and is not dropped yet.
unsafe fn elements<T>(object: NonNull<()>) -> NonNull<[T]> {
    // SAFETY: `init` has written the length there.
    let len = unsafe { object.cast::<usize>().read() };
    // SAFETY: the elements begin there, in the same allocation.
    let first = unsafe { object.byte_add(slice_layout::<T>(len).0) };
    NonNull::slice_from_raw_parts(first.cast(), len)
}

// SAFETY: the layout has the alignment of the length or of the elements, whichever is greater; the elements are dropped by
// `drop` only, and come from a vector.
unsafe impl<T> Pointee for [T] {
    type Target = [T];
    type Init = Vec<T>;
    const ALIGN: usize =
        if align_of::<T>() > align_of::<usize>() { align_of::<T>() } else { align_of::<usize>() };

    fn init(init: Vec<T>) -> NonNull<()> {
        let (offset, layout) = slice_layout::<T>(init.len());
        // SAFETY: the layout has room for the length at least.
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory has room for the length, and behind it for as many elements. They move there: the vector, whose
        // length is set to 0, frees its memory only.
        unsafe {
            memory.cast().write(init.len());
            let mut init = init;
            memory
                .byte_add(offset)
                .cast::<T>()
                .copy_from_nonoverlapping(NonNull::new_unchecked(init.as_mut_ptr()), init.len());
            init.set_len(0);
        }
        memory.cast()
    }

    unsafe fn target<'a>(object: NonNull<()>) -> &'a [T] {
        // SAFETY: the caller's promise.
        unsafe { elements(object).as_ref() }
    }

    unsafe fn bytes(object: NonNull<()>) -> usize {
        // SAFETY: the caller's promise.
        slice_layout::<T>(unsafe { elements::<T>(object) }.len()).1.size()
    }

    unsafe fn drop(object: NonNull<()>) {
        /// Frees the memory, also when an element's destructor panics.
        struct Memory(NonNull<()>, Layout);

        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: `init` allocated it with this layout.
                unsafe { dealloc(self.0.as_ptr().cast(), self.1) };
            }
        }

        // SAFETY: the caller's promise.
        let elements = unsafe { elements::<T>(object) };
        let _memory = Memory(object, slice_layout::<T>(elements.len()).1);
        // SAFETY: the caller owns them, and they are dropped once.
        unsafe { elements.drop_in_place() };
    }
}

/// A pointee whose object is in an [`Arc`]: a link to it has a count of its own, which a retirement gives up later. A type
/// for the parameter of links; there are no values of it.
///
/// ```
/// use std::sync::{atomic::Ordering, Arc};
/// use stillpoint::rcu::{Atomic, Domain, InArc, Owned};
///
/// let domain = Domain::new();
/// let value = Arc::new(7);
/// let link = Atomic::from(Owned::<InArc<u32>>::init(Arc::clone(&value)));
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let shared = link.load(Ordering::Acquire, &guard);
/// // SAFETY: nothing is retired before the guard ends.
/// let another = unsafe { shared.to_arc() }.expect("it is not null");
/// assert!(Arc::ptr_eq(&value, &another));
/// // SAFETY: nobody else uses the link.
/// drop(unsafe { link.into_owned() });
/// assert_eq!(Arc::strong_count(&value), 2);
/// ```
pub struct InArc<T> {
    /// Shares its traits.
    _arc: PhantomData<Arc<T>>,
    /// Not sized, so that it is not a pointee as sized types are.
    _unsized: [()],
}

// SAFETY: an `Arc`'s value is aligned, and lives as long as this count of it.
unsafe impl<T> Pointee for InArc<T> {
    type Target = T;
    type Init = Arc<T>;
    const ALIGN: usize = align_of::<T>();

    fn init(init: Arc<T>) -> NonNull<()> {
        // SAFETY: an `Arc` points to its value.
        unsafe { NonNull::new_unchecked(Arc::into_raw(init).cast_mut().cast()) }
    }

    unsafe fn target<'a>(object: NonNull<()>) -> &'a T {
        // SAFETY: the caller's promise.
        unsafe { object.cast().as_ref() }
    }

    unsafe fn bytes(_object: NonNull<()>) -> usize {
        size_of::<T>()
    }

    unsafe fn drop(object: NonNull<()>) {
        // SAFETY: it came from an `Arc` in `init`, whose count is the caller's.
        drop(unsafe { Arc::from_raw(object.cast::<T>().as_ptr()) });
    }
}

/// Another count of an `Arc` that a link points to.
///
/// # Safety
/// As for [`Pointee::target`] of `InArc<T>`.
pub(super) unsafe fn to_arc<T>(object: NonNull<()>) -> Arc<T> {
    // SAFETY: it came from an `Arc`, whose count is not given up as long as it may be followed; this is another one, made
    // from it and not dropped.
    let arc = ManuallyDrop::new(unsafe { Arc::from_raw(object.cast::<T>().as_ptr()) });
    Arc::clone(&arc)
}
