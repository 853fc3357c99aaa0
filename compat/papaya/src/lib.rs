//! papaya's interface over [`stillpoint::table`], as far as papaya's own tests use it. It is there for these tests; a program that comes
//! from papaya uses the table itself (`docs/guide/from-rust.md`).
//!
//! What differs from the original:
//!
//! - Keys and values of a map are `Send + Sync + 'static` where the map is made.
//! - References are valid as long as the guard *and* the borrow of the map: the original's guard borrows the map.
//! - A guard is one of the default domain. So it is good for all maps, and there is no `owned_guard`, which would be `Send`.
//! - [`ResizeMode`] changes nothing, and no collector can be chosen.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod map;
mod pinned;
mod set;

pub use map::{Compute, HashMap, HashMapBuilder, OccupiedError, Operation, ResizeMode};
pub use pinned::{HashMapRef, HashSetRef};
pub use set::HashSet;

pub use stillpoint::rcu::{Guard as LocalGuard, Region as Guard};
pub use stillpoint::table::{Iter, RandomState};

/// A table without a limit is full only when there is no memory: the original panics then, too.
fn room<T, E: std::fmt::Display>(done: Result<T, E>) -> T {
    done.unwrap_or_else(|full| panic!("{full}"))
}
