use std::error::Error;
use std::fmt;

/// A cell or a link did not hold the expected object. `new` hands back what was to be linked, and `found` is what was there.
///
/// From [`compare_exchange`](crate::rcu::RcuCell::compare_exchange) of a cell, `found` is an address, which may be
/// compared but not followed. From [`compare_exchange_in`](crate::rcu::RcuCell::compare_exchange_in), it is a reference that is valid
/// within the region. From [`compare_exchange`](super::Atomic::compare_exchange) of a link, it is a [`Shared`](super::Shared).
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(1);
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let object = cell.load(&guard).unwrap();
/// let error = cell.compare_exchange(None, Some(Box::new(2))).unwrap_err();
/// assert_eq!(error.found, std::ptr::from_ref(object).addr());
/// assert_eq!(error.new, Some(Box::new(2)));
/// ```
pub struct CompareExchangeError<P, F = usize> {
    /// What was to be linked: for a cell, an `Option` of a box.
    pub new: P,
    /// What was found: for a cell, an `Option` of a reference, or an address (0 for an empty cell).
    pub found: F,
}

impl<P, F> fmt::Display for CompareExchangeError<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link did not hold the expected pointer")
    }
}

stillpoint_sys::debug!([P, F] CompareExchangeError<P, F> { .. });

impl<P, F> Error for CompareExchangeError<P, F> {}

/// For cells and arrays, within a region.
pub(in crate::rcu) type FoundInRegion<'g, T> = CompareExchangeError<Option<Box<T>>, Option<&'g T>>;
