//! Addresses without memory, for models: the engine of the pool does not access objects. Under Miri, where no address
//! space can be reserved, memory of the allocator.

use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;

use super::{Made, Refusal, Want};

pub const HUGE: usize = if cfg!(miri) { 4096 } else { 2 << 20 };

/// Addresses; under Miri, with memory behind them.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its addresses, and gives no access to what is there.
unsafe impl Send for Reservation {}
// SAFETY: a shared reservation gives no access to what is there.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub fn new(bytes: usize, align: usize) -> io::Result<Self> {
        let nothing = || io::Error::from(io::ErrorKind::OutOfMemory);
        let layout = Layout::from_size_align(bytes.max(1), align.max(HUGE)).map_err(|_| nothing())?;
        #[cfg(miri)]
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(nothing)?;
        #[cfg(not(miri))]
        let start = NonNull::without_provenance(const { std::num::NonZeroUsize::new(1 << 40).unwrap() });
        Ok(Self { start, layout })
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Succeeds with the first kind that is wanted. Refuses a node, an empty part, a part outside the reservation, and a call
    /// that wants no kind.
    ///
    /// # Safety
    /// None.
    pub unsafe fn fill(&self, offset: usize, bytes: usize, want: Want) -> Result<Made, Refusal> {
        if offset + bytes > self.layout.size() {
            return Err(Refusal::Lost);
        }
        let nothing = || io::Error::from(io::ErrorKind::OutOfMemory);
        match want {
            Want { node: Some(node), .. } => Err(Refusal::Node(node)),
            _ if bytes == 0 => Err(Refusal::Reserved(nothing())),
            Want { reserved: true, .. } => Ok(Made::Reserved),
            Want { transparent: true, .. } => Ok(Made::Transparent),
            Want { small: true, .. } => Ok(Made::Small),
            _ => Err(Refusal::Memory(nothing())),
        }
    }

    /// # Safety
    /// None.
    pub unsafe fn empty(&self, _offset: usize, _bytes: usize, _made: Made) {}
}

#[cfg(miri)]
impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, and its owner is gone.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}
