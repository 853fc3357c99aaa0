//! The promises of the original's documentation about links and pointers, sentence by sentence.

use std::borrow::{Borrow, BorrowMut};
use std::mem::MaybeUninit;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use stillpoint_epoch::{self as epoch, Atomic, Collector, Guard, Owned, Pointable, Pointer, Shared};

/// Frees the object of a link.
fn free<T: ?Sized + Pointable>(link: Atomic<T>) {
    // SAFETY: these tests own what their links point to.
    drop(unsafe { link.try_into_owned() });
}

/// A guard for links that no other thread has.
fn alone() -> &'static Guard {
    // SAFETY: no other thread has the links of these tests.
    unsafe { epoch::unprotected() }
}

/// The number that a link points to.
fn number(link: &Atomic<u64>) -> Option<u64> {
    // SAFETY: no other thread has the links of these tests.
    unsafe { link.load(Acquire, alone()).as_ref() }.copied()
}

#[test]
fn links_are_made_in_each_way() {
    static NULL: Atomic<u64> = Atomic::null();
    const SHARED: Shared<'static, u64> = Shared::null();
    assert_eq!((number(&NULL), SHARED.is_null()), (None, true));
    assert!(Atomic::<u64>::default().load(SeqCst, alone()).is_null() && Shared::<u64>::default().is_null());
    let links = [
        Atomic::new(7),
        Atomic::<u64>::init(7),
        Atomic::<u64>::from(7),
        Atomic::<u64>::from(Box::new(7)),
        Atomic::<u64>::from(Owned::new(7).with_tag(1)),
        Atomic::<u64>::from(Owned::<u64>::init(7).into_shared(alone())),
        Atomic::<u64>::from(Box::into_raw(Box::new(7_u64)).cast_const()),
    ];
    assert_eq!(links[4].load(Relaxed, alone()).tag(), 1);
    for link in links {
        assert_eq!(number(&link), Some(7));
        free(link);
    }
}

#[test]
fn a_clone_of_a_link_points_to_the_same_object() {
    let link = Atomic::new(7_u64);
    let clone = link.clone();
    assert_eq!(link.load(SeqCst, alone()), clone.load_consume(alone()));
    clone.store(Shared::null(), SeqCst);
    assert_eq!(number(&link), Some(7), "the clone is a separate link");
    free(link);
}

#[test]
fn store_and_swap_take_owned_and_shared_pointers() {
    let link = Atomic::null();
    link.store(Owned::new(7_u64), Release);
    let old = link.swap(Owned::new(8), AcqRel, alone());
    assert_eq!(number(&link), Some(8));
    let new = link.swap(old, AcqRel, alone());
    assert_eq!(number(&link), Some(7));
    link.store(new.with_tag(3), Release);
    assert_eq!((number(&link), link.load(Acquire, alone()).tag()), (Some(8), 3));
    free(Atomic::<u64>::from(old));
    free(link);
}

#[test]
fn an_exchange_compares_address_and_tag() {
    let link = Atomic::<u64>::from(Owned::new(7_u64).with_tag(1));
    let first = link.load(Acquire, alone());
    let error =
        link.compare_exchange(first.with_tag(0), Owned::new(8), AcqRel, Acquire, alone()).unwrap_err();
    assert_eq!(
        (error.current, *error.new),
        (first, 8),
        "the error has the linked pointer, and hands the new one back"
    );
    let linked = link.compare_exchange(first, error.new.with_tag(2), AcqRel, Acquire, alone()).unwrap();
    assert_eq!((number(&link), linked.tag()), (Some(8), 2));
    assert_eq!(link.load(Acquire, alone()), linked);
    // The new pointer may be a shared one.
    let error = link.compare_exchange(first, Shared::null(), SeqCst, SeqCst, alone()).unwrap_err();
    assert_eq!((error.current, error.new), (linked, Shared::null()));
    assert_eq!(link.compare_exchange(linked, first, SeqCst, SeqCst, alone()).unwrap(), first);
    free(Atomic::<u64>::from(linked));
    free(link);
}

#[test]
fn a_weak_exchange_succeeds_in_the_end_and_never_with_another_pointer() {
    let link = Atomic::<u64>::null();
    let (expected, mut new) = (Shared::null(), Owned::new(7));
    loop {
        match link.compare_exchange_weak(expected, new, AcqRel, Relaxed, alone()) {
            Ok(linked) => break assert_eq!(link.load(Acquire, alone()), linked),
            Err(error) => {
                assert!(error.current.is_null());
                new = error.new;
            }
        }
    }
    assert!(link.compare_exchange_weak(Shared::null(), Owned::new(8), AcqRel, Relaxed, alone()).is_err());
    assert_eq!(number(&link), Some(7));
    free(link);
}

#[test]
#[expect(deprecated, reason = "the original has them")]
fn the_deprecated_names_take_one_ordering_or_two() {
    use stillpoint_epoch::{CompareAndSetError, CompareAndSetOrdering};

    let failures =
        [(Relaxed, Relaxed), (Acquire, Acquire), (Release, Relaxed), (AcqRel, Acquire), (SeqCst, SeqCst)];
    for (success, failure) in failures {
        assert_eq!((success.success(), success.failure()), (success, failure));
        assert_eq!(((success, Relaxed).success(), (success, Relaxed).failure()), (success, Relaxed));
    }
    let link = Atomic::<u64>::null();
    let marked = Shared::null().with_tag(1);
    assert_eq!(link.compare_and_set(Shared::null(), marked, AcqRel, alone()).unwrap(), marked);
    let error: CompareAndSetError<'_, u64, Owned<u64>> =
        link.compare_and_set(Shared::null(), Owned::new(7), (SeqCst, Relaxed), alone()).unwrap_err();
    assert_eq!((error.current, *error.new), (marked, 7));
    while link.compare_and_set_weak(marked, Shared::null(), Release, alone()).is_err() {}
    assert!(link.compare_and_set_weak(marked, marked, Release, alone()).is_err());
}

#[test]
fn an_update_returns_what_was_linked_before() {
    let link = Atomic::<u64>::null();
    let mut calls = 0;
    let before = link.fetch_update(SeqCst, SeqCst, alone(), |found| {
        calls += 1;
        Some(found.with_tag(2))
    });
    assert_eq!((before, link.load(SeqCst, alone()).tag()), (Ok(Shared::null()), 2));
    assert!(calls >= 1);
    let found = link.fetch_update(SeqCst, SeqCst, alone(), |_| None);
    assert_eq!(found.unwrap_err().tag(), 2);
}

#[test]
fn bits_of_the_tag_are_changed_without_those_of_the_address() {
    let link = Atomic::<u64>::from(Owned::new(7_u64).with_tag(0b011));
    let address = link.load(SeqCst, alone()).as_raw();
    assert_eq!(link.fetch_and(0b110, SeqCst, alone()).tag(), 0b011);
    assert_eq!(link.fetch_or(0b100, SeqCst, alone()).tag(), 0b010);
    assert_eq!(link.fetch_xor(0b101, SeqCst, alone()).tag(), 0b110);
    assert_eq!(link.fetch_or(usize::MAX, SeqCst, alone()).tag(), 0b011);
    assert_eq!(link.fetch_xor(!0b111, SeqCst, alone()).tag(), 0b111);
    assert_eq!(link.fetch_and(0, SeqCst, alone()).tag(), 0b111);
    assert_eq!((link.load(SeqCst, alone()).tag(), link.load(SeqCst, alone()).as_raw()), (0, address));
    free(link);
}

/// A tag keeps only the bits that the alignment leaves free.
#[test]
fn tags_have_the_room_that_the_alignment_leaves() {
    #[repr(align(64))]
    struct Line;
    assert_eq!(Shared::<u8>::null().with_tag(7).tag(), 0);
    assert_eq!(Shared::<u16>::null().with_tag(7).tag(), 1);
    assert_eq!(Shared::<u64>::null().with_tag(15).tag(), 7);
    assert_eq!(Shared::<Line>::null().with_tag(usize::MAX).tag(), 63);
    assert_eq!(Shared::<[MaybeUninit<u8>]>::null().with_tag(usize::MAX).tag(), align_of::<usize>() - 1);
    assert!(Shared::<u64>::null().with_tag(7).is_null(), "a pointer with a tag may be null");
    assert_eq!(Owned::new(7_u64).with_tag(9).tag(), 1);
    assert_eq!(Owned::new(7_u64).tag(), 0);
}

#[test]
fn an_owned_pointer_is_a_box() {
    let mut owned = Owned::new(vec![1]).with_tag(1);
    owned.push(2);
    BorrowMut::<Vec<i32>>::borrow_mut(&mut owned).push(3);
    AsMut::<Vec<i32>>::as_mut(&mut owned).push(4);
    assert_eq!(Borrow::<Vec<i32>>::borrow(&owned), &[1, 2, 3, 4]);
    let clone = owned.clone();
    assert_eq!((clone.tag(), AsRef::<Vec<i32>>::as_ref(&clone)), (1, &vec![1, 2, 3, 4]));
    assert_ne!(clone.as_ptr(), owned.as_ptr(), "a clone is a copy of the object");
    let boxed: Box<Vec<i32>> = owned.into_box();
    let address = ptr::from_ref(&*boxed);
    let owned: Owned<Vec<i32>> = boxed.into();
    assert_eq!(ptr::from_ref(&*owned), address);
    // SAFETY: the pointer came from a box, and is owned once.
    let owned = unsafe { Owned::from_raw(Box::into_raw(owned.into_box())) };
    assert_eq!(owned.tag(), 0);
    let owned = Owned::<u64>::from(7);
    assert_eq!(*owned, 7);
}

#[test]
fn a_shared_pointer_is_read_changed_and_owned() {
    let shared = Owned::new(vec![1]).with_tag(2).into_shared(alone());
    let mut copy = shared;
    // SAFETY: no other thread has the object.
    unsafe {
        copy.deref_mut().push(2);
        assert_eq!((shared.deref(), shared.as_ref()), (&vec![1, 2], Some(&vec![1, 2])));
        assert_eq!(shared.as_raw(), ptr::from_ref(shared.deref()));
        let owned = shared.into_owned();
        assert_eq!((owned.tag(), &**owned), (2, &[1, 2][..]));
        assert!(Shared::<u64>::null().with_tag(1).try_into_owned().is_none());
        assert!(Shared::<u64>::null().as_ref().is_none());
        assert!(Atomic::<u64>::null().try_into_owned().is_none());
        assert_eq!(owned.into_shared(alone()).try_into_owned().expect("it is not null").tag(), 2);
    }
}

#[test]
fn shared_pointers_are_ordered_by_address_and_tag() {
    let numbers = [1_u64, 2];
    let [first, second] = [0, 1].map(|index| Shared::from(&raw const numbers[index]));
    assert!(first < first.with_tag(1) && first.with_tag(7) < second && Shared::null() < first);
    assert_eq!(first.cmp(&first), std::cmp::Ordering::Equal);
    assert_eq!(first.partial_cmp(&second), Some(std::cmp::Ordering::Less));
}

#[test]
fn a_word_is_the_same_pointer_again() {
    let word = Owned::new(7_u64).with_tag(3).into_usize();
    // SAFETY: the word came from an `Owned`, and is used once.
    let owned = unsafe { Owned::<u64>::from_usize(word) };
    assert_eq!((*owned, owned.tag(), word % 8), (7, 3, 3));
    let shared = owned.into_shared(alone());
    // SAFETY: the word came from a `Shared`.
    assert_eq!(unsafe { Shared::<u64>::from_usize(shared.into_usize()) }, shared);
    free(Atomic::<u64>::from(shared));
}

#[test]
fn arrays_have_the_length_that_they_were_made_with() {
    for len in [0, 1, 10, 1000] {
        let mut array = Owned::<[MaybeUninit<u16>]>::init(len);
        assert_eq!(array.len(), len);
        for (index, place) in array.iter_mut().enumerate() {
            place.write(index as u16);
        }
        let link = Atomic::<[MaybeUninit<u16>]>::from(array.with_tag(1));
        let shared = link.load(Acquire, alone());
        // SAFETY: no other thread has the slice, and all elements were written.
        let sum: usize = unsafe { shared.deref().iter().map(|place| usize::from(place.assume_init())).sum() };
        assert_eq!((sum, shared.tag()), (len * len.saturating_sub(1) / 2, 1));
        free(link);
    }
    #[repr(align(128))]
    struct Wide(u8);
    let mut wide = Owned::<[MaybeUninit<Wide>]>::init(3);
    assert!(wide.iter_mut().all(|place| ptr::from_ref(place.write(Wide(7))).is_aligned()));
    // SAFETY: all elements were written.
    assert!(wide.iter().all(|place| unsafe { place.assume_init_ref() }.0 == 7));
    assert_eq!(Owned::<[MaybeUninit<()>]>::init(5).len(), 5);
}

/// A link may point to a type for which the user implements `Pointable`.
#[test]
fn anybody_may_implement_pointable() {
    struct Text(str);

    impl Pointable for Text {
        const ALIGN: usize = align_of::<String>();
        type Init = &'static str;

        unsafe fn init(init: Self::Init) -> usize {
            Box::into_raw(Box::new(String::from(init))).expose_provenance()
        }

        unsafe fn deref<'a>(ptr: usize) -> &'a Self {
            // SAFETY: the caller's promise; the layouts are the same.
            unsafe {
                let text: &str = &*ptr::with_exposed_provenance::<String>(ptr);
                &*(ptr::from_ref(text) as *const Self)
            }
        }

        unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
            // SAFETY: the caller's promise; the layouts are the same.
            unsafe {
                let text: &mut str = &mut *ptr::with_exposed_provenance_mut::<String>(ptr);
                &mut *(ptr::from_mut(text) as *mut Self)
            }
        }

        unsafe fn drop(ptr: usize) {
            // SAFETY: the address came from a box.
            drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<String>(ptr)) });
        }
    }

    let guard = Collector::new().register().pin();
    let link = Atomic::<Text>::init("first");
    let old = link.swap(Owned::<Text>::init("second").with_tag(3), AcqRel, &guard);
    // SAFETY: the object was unlinked just now, and is not destroyed before the guard is dropped.
    unsafe {
        guard.defer_destroy(old);
        assert_eq!((&old.deref().0, &link.load(Acquire, &guard).deref().0), ("first", "second"));
    }
    // SAFETY: no other thread has the object.
    let mut owned = unsafe { link.into_owned() };
    owned.0.make_ascii_uppercase();
    assert_eq!((&owned.0, owned.tag()), ("SECOND", 3));
}

/// Whether a call panics.
fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err()
}

#[test]
fn pointers_that_are_not_aligned_are_refused() {
    let bytes = [0_u64; 2];
    let odd = (&raw const bytes).wrapping_byte_add(1).cast::<u64>();
    assert!(panics(|| Shared::from(odd)));
    // SAFETY: the call panics before anything is owned.
    assert!(panics(|| unsafe { Owned::from_raw(odd.cast_mut()) }));
    // A link takes the lower bits as a tag.
    let link = Atomic::<u64>::from(odd);
    assert_eq!(
        (link.load(Relaxed, alone()).tag(), link.load(Relaxed, alone()).as_raw()),
        (1, (&raw const bytes).cast())
    );
}

#[cfg(debug_assertions)]
#[test]
fn nobody_owns_null_in_debug_builds() {
    // SAFETY: the calls panic before anything is owned.
    unsafe {
        assert!(panics(|| Shared::<u64>::null().into_owned()));
        assert!(panics(|| Atomic::<u64>::null().into_owned()));
        let guard = epoch::pin();
        assert!(panics(|| guard.defer_destroy(Shared::<u64>::null())));
    }
}

#[test]
fn orderings_that_an_operation_does_not_have_are_refused() {
    let link = Atomic::<u64>::null();
    let null = Shared::null();
    for wrong in [Release, AcqRel] {
        assert!(panics(|| link.load(wrong, alone())));
        assert!(panics(|| link.compare_exchange(null, null, SeqCst, wrong, alone())));
    }
    assert!(panics(|| link.store(null, Ordering::Acquire)));
}
