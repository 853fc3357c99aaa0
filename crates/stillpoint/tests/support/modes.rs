//! Promises that hold in every fence mode are tested in each. Test programs that use this have `skip.rs` as their
//! module `skip`.

use stillpoint::fence::{asymmetric_supported, Mode};
use stillpoint::rcu::Domain;

use crate::skip::skipped;

/// Calls `test` with a new domain in each fence mode that this process may use.
#[allow(dead_code, reason = "some tests have domains that are built otherwise")]
pub(crate) fn in_each_mode(test: impl Fn(Domain)) {
    for mode in modes() {
        test(Domain::builder().fence(mode).build().expect("the mode was probed"));
    }
}

/// The fence modes that this process may use.
pub(crate) fn modes() -> impl Iterator<Item = Mode> {
    let asymmetric = match asymmetric_supported() {
        Ok(()) => Some(Mode::Asymmetric),
        Err(error) => {
            skipped(&format!("in fence mode asymmetric: {error}"));
            None
        }
    };
    asymmetric.into_iter().chain([Mode::Symmetric])
}
