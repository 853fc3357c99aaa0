use std::{fmt, io};

/// Why a pool could not be built. Nothing stays allocated.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The size is zero, or an object does not fit into the largest bucket, of 1 GiB, or the alignment is not a power of
    /// two.
    Object {
        /// Bytes of an object.
        size: usize,
        /// Its alignment.
        align: usize,
    },
    /// The size of a bucket is not a power of two, or above 1 GiB, or too small for one object.
    Bucket {
        /// The requested value.
        bytes: usize,
        /// Bytes from one object to the next.
        least: usize,
    },
    /// The distance from one object to the next is smaller than an object or than 8 bytes, not a multiple of the alignment,
    /// or above 1 GiB.
    Stride {
        /// The requested distance, in bytes.
        bytes: usize,
        /// The smallest possible distance.
        least: usize,
        /// The alignment of an object.
        align: usize,
    },
    /// The caller's memory is too small for the capacity, or not aligned for the objects, or `max_objects` lets the pool grow.
    Given {
        /// Its size in bytes.
        bytes: usize,
        /// The size that is needed, at a multiple of the alignment.
        needed: usize,
    },
    /// The capacity is zero, too large, or above the limit.
    Capacity {
        /// The requested number of objects.
        objects: usize,
    },
    /// The number of threads is not between 1 and 65,536.
    Locals {
        /// The requested value.
        locals: usize,
    },
    /// There are not enough reserved huge pages, and no others were allowed. Also, before Linux 5.14, if a node was set: it is then unknown
    /// whether that node has any.
    ReservedPages(io::Error),
    /// There is no such NUMA node, or it has no memory.
    Node {
        /// Its number.
        node: u32,
    },
    /// The kernel refused the memory.
    Memory {
        /// Requested bytes.
        bytes: usize,
        /// The kernel's error, if there was one.
        cause: Option<io::Error>,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { size, align } => {
                write!(
                    f,
                    "objects of {size} bytes, aligned to {align}, cannot be pooled: use at least 1 byte, fewer than 1 GiB, \
                     and an alignment that is a power of two"
                )
            }
            Self::Bucket { bytes, least } => {
                write!(
                    f,
                    "a bucket of {bytes} bytes is impossible: use a power of two, from {least} to 1 GiB"
                )
            }
            Self::Stride { bytes, least, align } => {
                write!(
                    f,
                    "a stride of {bytes} bytes is impossible for these objects: set a multiple of {align}, from {least} to 1 GiB"
                )
            }
            Self::Given { bytes, needed } => {
                write!(
                    f,
                    "the pool cannot use the given memory of {bytes} bytes: give it {needed}, at a multiple of the \
                     alignment of its objects, and no max_objects"
                )
            }
            Self::Capacity { objects } => {
                write!(
                    f,
                    "a pool of {objects} objects cannot be made: use a capacity of 1 or more, max_objects no less, and \
                     fewer than 2^32 buckets"
                )
            }
            Self::Locals { locals } => write!(f, "a pool for {locals} threads is impossible: use 1 to 65536"),
            Self::ReservedPages(cause) => {
                write!(f, "there are not enough reserved huge pages ({cause}): raise vm.nr_hugepages, or allow other pages; \
                     before Linux 5.14, set no node")
            }
            Self::Node { node } => {
                write!(f, "there is no NUMA node {node} with memory: see numactl --hardware")
            }
            Self::Memory { bytes, cause: Some(cause) } => {
                write!(f, "there is no memory for a pool of {bytes} bytes ({cause}): make it smaller")
            }
            Self::Memory { bytes, cause: None } => {
                write!(f, "there is no memory for a pool of {bytes} bytes: make it smaller")
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

/// The pool already has its maximum number of threads. Drop or park a local, or build the pool with a larger
/// [`max_locals`](super::PoolBuilder::max_locals).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyLocals {
    pub(super) limit: usize,
}

impl fmt::Display for TooManyLocals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads use the pool already: drop or park a local, or raise max_locals", self.limit)
    }
}

impl std::error::Error for TooManyLocals {}

/// The caller could not get this many free objects of the pool. None was allocated.
///
/// ```
/// use stillpoint::pool::{Exhausted, Pool};
///
/// let pool = Pool::new(1_000, || [0u8; 64])?;
/// let local = pool.local()?;
/// let mut burst = local.bulk(32);
/// assert_eq!(local.alloc_bulk(1 << 20, &mut burst), Err(Exhausted { wanted: 1 << 20 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Requested objects.
    pub wanted: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool does not have {} free objects: free some, or make it larger", self.wanted)
    }
}

impl std::error::Error for Exhausted {}

/// Why an object was not freed. In a call for several objects, those before it were freed. Those after it were not, and
/// still belong to the caller. In a call for a block, no object was freed.
///
/// The number is the position of the object in the call, or in the block that was to be freed; 0 in a call for one object. The
/// error does not hand the object back: the caller has its address.
///
/// ```
/// use stillpoint::pool::raw::{FreeError, RawPool};
///
/// let (pool, other) = (RawPool::builder(10, 64, 64).build()?, RawPool::builder(10, 64, 64).build()?);
/// let (local, other) = (pool.local()?, other.local()?);
/// let objects = [local.alloc().unwrap(), other.alloc().unwrap()];
/// // SAFETY: nothing uses the objects any more.
/// let error = unsafe { local.free_many(&objects) }.unwrap_err();
/// assert_eq!((error, error.index()), (FreeError::Foreign(1), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// The address is outside the pool.
    Foreign(usize),
    /// No object begins at the address. Hardened pools and those without a cache find this in each free; others only where objects go to their
    /// buckets, and a cache may hand such an address out again. None finds it of an address between two pieces of a pool that has grown.
    NotAnObject(usize),
    /// The object is free. Only hardened pools return this; others detect it when the object comes back to its bucket.
    AlreadyFree(usize),
}

impl FreeError {
    /// The position of the object, whatever the reason.
    pub fn index(self) -> usize {
        let (Self::Foreign(index) | Self::NotAnObject(index) | Self::AlreadyFree(index)) = self;
        index
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            Self::Foreign(_) => "its address is outside the pool: free it to the pool that it came from",
            Self::NotAnObject(_) => "no object begins at its address: free the address that was allocated",
            Self::AlreadyFree(_) => "it is free already: find the call that freed it before",
        };
        write!(f, "object {} of this call was not freed: {reason}", self.index())
    }
}

impl std::error::Error for FreeError {}
