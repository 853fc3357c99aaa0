//! Words. A word is an address with a tag, which is in the bits that the alignment leaves free.

use std::{fmt, ptr};

use crate::pointable::Pointable;

/// The bits of a word that are its tag.
const fn mask<T: ?Sized + Pointable>() -> usize {
    // The tag has as many bits as the alignment has trailing zeros: an implementation of the trait may name an
    // alignment that is not a power of two.
    (1 << T::ALIGN.trailing_zeros()) - 1
}

/// The address in a word.
#[inline]
pub(crate) fn address<T: ?Sized + Pointable>(word: usize) -> usize {
    word & !mask::<T>()
}

/// The tag in a word.
#[inline]
pub(crate) fn tag<T: ?Sized + Pointable>(word: usize) -> usize {
    word & mask::<T>()
}

/// The word with another tag. Bits of the tag that have no room are dropped.
#[inline]
pub(crate) fn with_tag<T: ?Sized + Pointable>(word: usize, tag: usize) -> usize {
    address::<T>(word) | self::tag::<T>(tag)
}

/// The word for a pointer without a tag. Exposes its provenance.
///
/// # Panics
/// If the pointer is not aligned.
#[inline]
pub(crate) fn of_pointer<T>(pointer: *const T) -> usize {
    let word = pointer.expose_provenance();
    assert_eq!(tag::<T>(word), 0, "the pointer is not aligned");
    word
}

/// The pointer in a word.
#[inline]
pub(crate) fn pointer<T>(word: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(address::<T>(word))
}

/// The debug output of a link or a pointer with this word.
pub(crate) fn debug<T: ?Sized + Pointable>(
    name: &str,
    word: usize,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.debug_struct(name).field("raw", &address::<T>(word)).field("tag", &tag::<T>(word)).finish()
}

/// Writes the address in a word as that of a pointer. Nothing is dereferenced.
pub(crate) fn show_address<T: ?Sized + Pointable>(word: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    fmt::Pointer::fmt(&ptr::without_provenance::<()>(address::<T>(word)), f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_an_address_and_a_tag() {
        let word = with_tag::<u64>(0x1000, 5);
        assert_eq!((address::<u64>(word), tag::<u64>(word)), (0x1000, 5));
        assert_eq!(with_tag::<u64>(word, 2), 0x1002);
    }

    #[test]
    fn a_tag_has_as_many_bits_as_the_alignment_leaves() {
        assert_eq!(with_tag::<u8>(0x1001, 7), 0x1001);
        assert_eq!(with_tag::<u16>(0x1000, 7), 0x1001);
        assert_eq!(with_tag::<u64>(0x1000, 15), 0x1007);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_pointer_that_is_not_aligned_is_refused() {
        of_pointer::<u64>(ptr::without_provenance(0x1001));
    }
}
