//! Hashers that are not the default one may be weak: the lower bits of a hash choose the bucket, and its upper 16 make
//! the tag, but `Identity` of keys in steps of 64 sets none of the lower six, and a product has its best bits on top. So
//! these hashes are mixed by one multiplication, unless the table was told not to.

use std::any::TypeId;
use std::marker::PhantomData;

use crate::table::RandomState;

/// An odd number whose bits are in no order: the fractional part of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The two halves of a product, folded together: each bit of the hash reaches both the lower bits and the upper 16.
#[inline(always)]
pub(super) fn mixed(hash: u64) -> u64 {
    let product = u128::from(hash) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

/// Whether `S` is the type of the default hasher. A constant to the compiler.
#[inline(always)]
pub(super) fn is_default<S>() -> bool {
    /// `TypeId::of` demands `'static`, which a hasher need not be.
    trait Named {
        fn type_id(&self) -> TypeId
        where
            Self: 'static;
    }

    impl<T> Named for PhantomData<T> {
        #[inline(always)]
        fn type_id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }

    let marker = PhantomData::<S>;
    let named: &dyn Named = &marker;
    // SAFETY: only the lifetime of the type changes. `type_id` reads nothing of that lifetime: it returns the number of
    // the type, in which lifetimes do not count. The default hasher's type has none.
    let named = unsafe { std::mem::transmute::<&dyn Named, &(dyn Named + 'static)>(named) };
    named.type_id() == TypeId::of::<RandomState>()
}
