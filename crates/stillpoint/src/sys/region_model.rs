//! Addresses without memory, for models: the engine of the pool does not look at objects.

use std::io;
use std::ptr::NonNull;

pub(crate) const HUGE: usize = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) reserved: bool,
    pub(crate) transparent: bool,
    pub(crate) small: bool,
    pub(crate) node: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Reserved,
    Transparent,
    Small,
}

#[derive(Debug)]
pub(crate) enum Refusal {
    Node(u32),
    Reserved(io::Error),
    Memory(io::Error),
    Lost,
}

/// So many addresses.
#[derive(Debug)]
pub(crate) struct Reservation(usize);

impl Reservation {
    pub(crate) fn new(bytes: usize, _align: usize) -> io::Result<Self> {
        Ok(Self(bytes))
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        const START: std::num::NonZeroUsize = std::num::NonZeroUsize::new(1 << 40).unwrap();
        NonNull::without_provenance(START)
    }

    /// The first choice is always there.
    ///
    /// # Safety
    /// None.
    pub(crate) unsafe fn fill(&self, offset: usize, bytes: usize, want: Want) -> Result<Made, Refusal> {
        if offset + bytes > self.0 {
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
    pub(crate) unsafe fn empty(&self, _offset: usize, _bytes: usize, _made: Made) {}
}
