use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// Types that one word can point to.
///
/// These are all sized types, for which the word is the address of a `Box`, and slices of [`MaybeUninit`], whose length
/// lies in front of their elements:
///
/// ```
/// use std::mem::MaybeUninit;
/// use stillpoint_epoch::Owned;
///
/// let mut squares = Owned::<[MaybeUninit<u32>]>::init(10);
/// for (number, place) in (0..).zip(squares.iter_mut()) {
///     place.write(number * number);
/// }
/// // SAFETY: all ten elements were written.
/// assert_eq!(unsafe { squares[9].assume_init() }, 81);
/// ```
///
/// The elements of such a slice are not dropped with it. Other unsized types may implement the trait.
pub trait Pointable {
    /// A power of two that divides each address: the tag is in the bits below it.
    const ALIGN: usize;

    /// What a new object is made from.
    type Init;

    /// Makes an object, and returns its address.
    ///
    /// # Safety
    /// The caller destroys the object with [`drop`](Pointable::drop), or leaks it. An implementation returns a multiple
    /// of [`ALIGN`](Pointable::ALIGN) that is not 0.
    unsafe fn init(init: Self::Init) -> usize;

    /// The object at this address.
    ///
    /// # Safety
    /// [`init`](Pointable::init) returned the address, and the object was not destroyed. As long as the reference is
    /// used, there is no mutable reference to the object.
    unsafe fn deref<'a>(ptr: usize) -> &'a Self;

    /// The object at this address, to be changed.
    ///
    /// # Safety
    /// [`init`](Pointable::init) returned the address, and the object was not destroyed. As long as the reference is
    /// used, there is no other reference to the object.
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self;

    /// Destroys the object at this address.
    ///
    /// # Safety
    /// [`init`](Pointable::init) returned the address, and the object was not destroyed. There is no reference to the
    /// object.
    unsafe fn drop(ptr: usize);

    /// Bytes of each object, for statistics; 0 if they are not known. The size cannot depend on the object: a thread
    /// that defers its destruction may not have loaded the link with acquire, and so must not read the object.
    #[doc(hidden)]
    const STILLPOINT_BYTES: usize = 0;
}

impl<T> Pointable for T {
    const ALIGN: usize = align_of::<T>();

    const STILLPOINT_BYTES: usize = size_of::<T>();

    type Init = T;

    unsafe fn init(init: Self::Init) -> usize {
        Box::into_raw(Box::new(init)).expose_provenance()
    }

    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        // SAFETY: `init` has exposed the pointer. The object is alive, and there is no mutable reference to it, by the
        // caller's promise.
        unsafe { &*ptr::with_exposed_provenance(ptr) }
    }

    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        // SAFETY: `init` has exposed the pointer. The object is alive, and there is no other reference to it, by the
        // caller's promise.
        unsafe { &mut *ptr::with_exposed_provenance_mut(ptr) }
    }

    unsafe fn drop(ptr: usize) {
        // SAFETY: the address came from `Box::into_raw` in `init`, and the caller gives the object up.
        drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<T>(ptr)) });
    }
}

/// The part in front of the elements of a slice. It is aligned for its length and for the elements, so the elements
/// follow at an offset that does not depend on their number.
#[repr(C)]
struct Head<T> {
    len: usize,
    elements: [MaybeUninit<T>; 0],
}

impl<T> Head<T> {
    /// The layout of a slice with its head; `None` if it is larger than any memory.
    fn layout(len: usize) -> Option<Layout> {
        let (layout, _) = Layout::new::<Self>().extend(Layout::array::<T>(len).ok()?).ok()?;
        Some(layout.pad_to_align())
    }

    /// The slice behind a head.
    ///
    /// # Safety
    /// The slice at this address is alive.
    unsafe fn slice(ptr: usize) -> *mut [MaybeUninit<T>] {
        let head = ptr::with_exposed_provenance_mut::<Self>(ptr);
        // SAFETY: the slice is alive, by the caller's promise. The head is accessed through a pointer: a reference to it
        // would not cover the elements.
        let (len, first) = unsafe { ((*head).len, (&raw mut (*head).elements).cast()) };
        ptr::slice_from_raw_parts_mut(first, len)
    }
}

impl<T> Pointable for [MaybeUninit<T>] {
    const ALIGN: usize = align_of::<Head<T>>();

    type Init = usize;

    /// # Panics
    /// If that many elements are larger than any memory.
    unsafe fn init(len: Self::Init) -> usize {
        let layout = Head::<T>::layout(len).expect("that many elements are larger than any memory");
        // SAFETY: the layout has a size above 0, since it has room for the length.
        let head = unsafe { alloc(layout) }.cast::<Head<T>>();
        if head.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the head was allocated just now.
        unsafe { (&raw mut (*head).len).write(len) };
        head.expose_provenance()
    }

    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        // SAFETY: the slice is alive, and there is no mutable reference to it, by the caller's promise.
        unsafe {
            let slice = Head::<T>::slice(ptr);
            slice::from_raw_parts(slice.cast(), slice.len())
        }
    }

    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        // SAFETY: the slice is alive, and there is no other reference to it, by the caller's promise.
        unsafe { &mut *Head::<T>::slice(ptr) }
    }

    unsafe fn drop(ptr: usize) {
        // SAFETY: `init` has allocated the slice with this layout, and the caller gives it up.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(ptr), layout_at::<T>(ptr)) };
    }
}

/// The layout of the slice at this address.
///
/// # Safety
/// The slice is alive.
unsafe fn layout_at<T>(ptr: usize) -> Layout {
    // SAFETY: the slice is alive, by the caller's promise.
    let len = unsafe { Head::<T>::slice(ptr) }.len();
    Head::<T>::layout(len).expect("the slice was allocated with this layout")
}

/// An [`Owned`](crate::Owned) or a [`Shared`](crate::Shared): a pointer that can be put into an
/// [`Atomic`](crate::Atomic).
///
/// ```
/// use std::sync::atomic::Ordering::Release;
/// use stillpoint_epoch::{Atomic, Owned, Pointer};
///
/// fn publish(link: &Atomic<u64>, new: impl Pointer<u64>) {
///     link.store(new, Release);
/// }
/// let link = Atomic::null();
/// publish(&link, Owned::new(7));
/// # drop(unsafe { link.into_owned() });
/// ```
pub trait Pointer<T: ?Sized + Pointable> {
    /// The word: an address with a tag. An `Owned` gives its object up.
    fn into_usize(self) -> usize;

    /// The pointer with this word.
    ///
    /// # Safety
    /// The word came from [`into_usize`](Pointer::into_usize) of a pointer of this type. If that pointer owned its
    /// object, the word is passed here only once.
    unsafe fn from_usize(data: usize) -> Self;
}
