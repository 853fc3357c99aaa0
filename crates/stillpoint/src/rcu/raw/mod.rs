//! The engine without types and lifetimes: for bindings to other languages, and for authors of data structures.
//!
//! Here the caller promises what the borrow checker ensures elsewhere; each function says what. The pieces work together with
//! the rest of [`rcu`](super), in the same domains.
//!
//! | for | use |
//! |---|---|
//! | loads of pointers that the caller keeps | [`protect`], [`Slot`] |
//! | objects that were not made by `Box` | [`Object`], [`Reclaimer::retire_raw`](super::Reclaimer::retire_raw), [`RetireHandle::retire_raw`](super::RetireHandle::retire_raw), [`leave`] |
//! | code of readers in another language | [`Parts`], [`offsets`], [`states`] |
//! | readers made where nothing may be allocated | [`Spare`] |
//! | objects that no particular thread holds | [`protect_owned`], [`Slot::of_nobody`] |
//! | callbacks in the user's own objects | [`Callback`], [`ObjectCallback`], [`CallbackQueue`] |
//! | tokens as numbers | [`number_of`], [`token_of`] |
//!
//! # The contract
//!
//! - **What is retired is unlinked.** No link that a reader of the domain follows leads to it any more. The structure decides
//!   whether links are marked or frozen before that.
//! - **The protected address is the retired address**, not that of a member. Hazard slots are compared with it.
//! - **A load under a guard or a [`QsbrReader`](super::QsbrReader) is an acquire**, and the exchange that unlinks is a release.
//! - **A reader's parts belong to the reader's thread**, as the reader does.
//! - **Functions that are passed in** (`destroy`, callbacks) are called by any thread, one at a time for each object. They may
//!   panic. The call that ran them does the rest of its work, and then resumes the panic. A panic does not cross into C: a
//!   function written in C cannot raise one.
//!
//! ```
//! use std::ptr::{self, NonNull};
//! use std::sync::atomic::{AtomicPtr, Ordering};
//! use stillpoint::rcu::{raw, Domain};
//!
//! unsafe extern "C-unwind" fn destroy(object: NonNull<()>, _context: *const ()) {
//!     // SAFETY: it came from `Box::into_raw` below.
//!     drop(unsafe { Box::from_raw(object.cast::<u64>().as_ptr()) });
//! }
//!
//! let domain = Domain::new();
//! let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
//! let link = AtomicPtr::new(Box::into_raw(Box::new(7_u64)));
//!
//! let (object, slot) = raw::protect(&reader, &link).expect("it is not null");
//! let unlinked = NonNull::new(link.swap(ptr::null_mut(), Ordering::AcqRel)).expect("it was not null");
//! let retired = raw::Object { address: unlinked.cast(), bytes: 8, context: ptr::null(), destroy };
//! // SAFETY: it is no longer linked, and `destroy` frees what `Box` has made.
//! unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
//! assert_eq!(reclaimer.poll(), 0);
//! // SAFETY: the slot holds it.
//! assert_eq!(unsafe { *object.as_ref() }, 7);
//! // SAFETY: the slot is of a reader of this thread, and the object is not used any more.
//! unsafe { slot.release() };
//! assert_eq!(reclaimer.poll(), 1);
//! ```

mod callbacks;
mod object;
mod parts;
mod slot;
mod spare;
mod token;

pub use super::engine::queue::callbacks::node::{Callback, Function, ObjectCallback};
pub use callbacks::{CallbackQueue, Paused};
pub(super) use object::retire;
pub use object::{leave, Object, Refused};
pub use parts::{
    blocked_by_caller, check, fence_error, guard_of, is_within_destructor, is_within_foreign_code, let_wait,
    offsets, states, Parts,
};
pub use slot::{protect, protect_owned, Slot};
pub use spare::Spare;
#[doc(hidden)]
pub use token::is_known_over;
pub use token::{number_of, token_of};
