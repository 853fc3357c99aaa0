//! Promises that hold in every fence mode are tested in each.

use stillpoint::fence::{asymmetric_supported, Mode};
use stillpoint::rcu::Domain;

/// Calls `test` with a new domain in each fence mode that this process may use.
pub(crate) fn in_each_mode(test: impl Fn(Domain)) {
    let asymmetric = asymmetric_supported().is_ok().then_some(Mode::Asymmetric);
    for mode in asymmetric.into_iter().chain([Mode::Symmetric, Mode::Signals]) {
        test(Domain::builder().fence(mode).build().expect("the mode was probed"));
    }
}
