/// What was found to be wrong, after the call that did it had returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The object was freed although it was free. The second free was not carried out.
    DoubleFree {
        /// Its address.
        address: usize,
    },
    /// Something was freed that is no object of the pool.
    NotAnObject {
        /// Its address.
        address: usize,
    },
    /// The object was written to while it was free. It has been handed out again.
    WrittenAfterFree {
        /// Its address.
        address: usize,
        /// The first byte that was changed.
        offset: usize,
    },
    /// The object was not valid when it came back, and a new one was made in its place.
    Invalid {
        /// Its address.
        address: usize,
    },
}
