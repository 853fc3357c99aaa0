use std::{fmt, io};

/// Why there is no pool. Nothing was allocated.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Objects of size zero need no pool.
    SizeZero,
    /// An object does not fit into the largest bucket, of 1 GiB.
    SizeHuge {
        /// Bytes of an object.
        size: usize,
    },
    /// The alignment is not a power of two.
    Alignment {
        /// What was asked for.
        align: usize,
    },
    /// The size of a bucket is not a power of two, or above 1 GiB.
    BucketSize {
        /// What was asked for.
        bytes: usize,
    },
    /// A bucket has no room for one object.
    BucketSmall {
        /// Bytes of a bucket.
        bytes: usize,
        /// Bytes from one object to the next.
        least: usize,
    },
    /// The distance from one object to the next is less than an object, or not a multiple of the alignment.
    Stride {
        /// What was asked for, in bytes.
        bytes: usize,
        /// The least that is possible.
        least: usize,
    },
    /// The memory that was given is too small for the capacity, is not aligned as the objects are, or cannot grow.
    Given {
        /// Its bytes.
        bytes: usize,
        /// Bytes that are needed, at a multiple of the alignment.
        needed: usize,
    },
    /// The capacity is zero, beyond what can be counted, or above the limit.
    Capacity {
        /// What was asked for, in objects.
        objects: usize,
    },
    /// No thread may use the pool, or more than 65,536.
    Locals {
        /// What was asked for.
        locals: usize,
    },
    /// There are no reserved huge pages, and nothing else was allowed.
    ReservedPages(io::Error),
    /// There is no such NUMA node, or it has no memory.
    Node {
        /// Its number.
        node: u32,
    },
    /// The kernel gives no memory.
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Its reason, if it told one.
        cause: Option<io::Error>,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SizeZero => f.write_str("objects of size zero need no pool: give them a size"),
            Self::SizeHuge { size } => {
                write!(
                    f,
                    "an object of {size} bytes is larger than the largest bucket, 1 GiB: pool smaller ones"
                )
            }
            Self::Alignment { align } => write!(f, "an alignment is a power of two, which {align} is not"),
            Self::BucketSize { bytes } => {
                write!(f, "a bucket has a power of two of bytes, 1 GiB at the most, and not {bytes}")
            }
            Self::BucketSmall { bytes, least } => {
                write!(f, "a bucket of {bytes} bytes has no room for one object: it needs {least} or more")
            }
            Self::Stride { bytes, least } => {
                write!(
                    f,
                    "objects cannot be {bytes} bytes apart: make the distance a multiple of the alignment, {least} or more"
                )
            }
            Self::Given { bytes, needed } => {
                write!(
                    f,
                    "{bytes} bytes of given memory do not make this pool: give it {needed}, at a multiple of the \
                     alignment of its objects, and no max_objects"
                )
            }
            Self::Capacity { objects } => {
                write!(
                    f,
                    "a pool of {objects} objects cannot be made: let the capacity be 1 or more, max_objects no less, and \
                     neither above 2^32 buckets"
                )
            }
            Self::Locals { locals } => write!(f, "{locals} threads cannot use a pool: allow 1 to 65536"),
            Self::ReservedPages(cause) => {
                write!(f, "there are not enough reserved huge pages ({cause}): raise vm.nr_hugepages, or allow others")
            }
            Self::Node { node } => {
                write!(f, "there is no NUMA node {node} with memory: see numactl --hardware")
            }
            Self::Memory { bytes, cause: Some(cause) } => {
                write!(f, "there is no memory of {bytes} bytes for a pool ({cause}): ask for less")
            }
            Self::Memory { bytes, cause: None } => {
                write!(f, "there is no memory of {bytes} bytes for a pool: ask for less")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ReservedPages(cause) | Self::Memory { cause: Some(cause), .. } => Some(cause),
            _ => None,
        }
    }
}

/// As many threads use the pool as it allows: drop or park a local, or build the pool with more: see
/// [`PoolBuilder::max_locals`](super::PoolBuilder::max_locals).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyLocals {
    pub(super) limit: usize,
}

impl fmt::Display for TooManyLocals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} threads use the pool already: drop or park a local, or build the pool with more of them",
            self.limit
        )
    }
}

impl std::error::Error for TooManyLocals {}

/// The caller could not get that many free objects of the pool: none was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Objects asked for.
    pub wanted: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool has no {} free objects: free some, or make it larger", self.wanted)
    }
}

impl std::error::Error for Exhausted {}

/// An object was not freed. Those before it in the same call were; those behind it were not, and are still the caller's. Of
/// a block, no other object was freed.
///
/// It holds no object: a pool of bare memory is told addresses, which the caller has.
///
/// ```
/// use stillpoint::pool::{FreeErrorKind, RawPool};
///
/// let (pool, other) = (RawPool::builder(10, 64, 64).build()?, RawPool::builder(10, 64, 64).build()?);
/// let (local, other) = (pool.local()?, other.local()?);
/// let objects = [local.alloc().unwrap(), other.alloc().unwrap()];
/// // SAFETY: nobody uses them any more.
/// let error = unsafe { local.free_many(&objects) }.unwrap_err();
/// assert_eq!((error.index(), error.kind()), (1, FreeErrorKind::Foreign));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeError {
    pub(super) index: usize,
    pub(super) kind: FreeErrorKind,
}

impl FreeError {
    /// The position of the object in the call, or in the block that was to be freed; 0 in a call for one object.
    pub fn index(self) -> usize {
        self.index
    }

    /// Why the object was not freed.
    pub fn kind(self) -> FreeErrorKind {
        self.kind
    }
}

/// Why an object was not freed: see [`FreeError::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeErrorKind {
    /// The address is none of the pool's.
    Foreign,
    /// No object begins at the address.
    NotAnObject,
    /// The object is free. Told at once only by hardened pools; others find it when the object comes back to its bucket.
    AlreadyFree,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.kind {
            FreeErrorKind::Foreign => "its address is none of the pool's: free it where it came from",
            FreeErrorKind::NotAnObject => {
                "no object begins at its address: free the address that was handed out"
            }
            FreeErrorKind::AlreadyFree => "it is free already: somebody has freed it twice",
        };
        write!(f, "object {} of this call was not freed: {reason}", self.index)
    }
}

impl std::error::Error for FreeError {}
