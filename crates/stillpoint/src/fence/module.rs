//! `int ioctl(int fd, unsigned long request, ...)` on `/dev/stillpoint_membarrier`, where the kernel module of this project
//! is loaded. Its interface is `kernel/include/stillpoint_membarrier.h`.
//!
//! Public for the project's own programs, which choose strategies; no promise is made to others.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use super::{Backend, FenceError};

pub const DEVICE: &str = "/dev/stillpoint_membarrier";
/// Of the interface.
pub const VERSION: u32 = 1;
/// `_IOWR(0xd7, 1, struct still_mb_request)`
const BARRIER: libc::c_ulong = 0xc040_d701;
/// Up to this many receivers the library's barriers are flat, and a tree beyond.
///
/// No optimum: where the two take equally long is not known, and the simulator moves it from 3 to 23 receivers with its
/// guessed inputs halved and doubled. Of the thresholds that the simulator compares, this one loses least to the better order
/// in the worst of those cases: 37 % (`docs/guide/simulate.md`, which a test compares with it).
pub const THRESHOLD: u32 = 12;

/// `enum still_mb_strategy`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Way {
    SmpCall = 0,
    Flat = 1,
    Tree = 2,
    Hybrid = 4,
}

/// `struct still_mb_request`
#[derive(Debug, Default)]
#[repr(C)]
pub struct Request {
    pub version: u32,
    pub strategy: u32,
    pub flags: u32,
    pub percent: u32,
    pub threshold: u32,
    pub reserved: u32,
    pub receivers: u32,
    pub root_sends: u32,
    pub sends: u32,
    pub depth: u32,
    pub longest_path: u32,
    pub refused: u32,
    pub send_ns: u64,
    pub total_ns: u64,
}

const _: () = assert!(size_of::<Request>() == 64, "the size is part of the number of the ioctl");

/// The device, open.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// # Errors
    /// When the module is not loaded, or this process may not open it.
    pub fn open() -> Result<Self, FenceError> {
        OpenOptions::new().read(true).write(true).open(DEVICE).map(Self).map_err(refused)
    }

    /// A full barrier on every processor that runs a thread of the process, and what the module tells of it.
    ///
    /// # Errors
    /// When the module is of another version; and as its interface has them.
    pub fn barrier(&self, way: Way) -> Result<Request, FenceError> {
        let threshold = if way == Way::Hybrid { THRESHOLD } else { 0 };
        let mut request = Request { version: VERSION, strategy: way as u32, threshold, ..Request::default() };
        // SAFETY: the kernel reads and writes the request, whose size is in the number.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), BARRIER, &raw mut request) } {
            -1 => Err(refused(io::Error::last_os_error())),
            _ => Ok(request),
        }
    }
}

/// Opens the device and tries one barrier, once; remembers the answer.
pub(super) fn open() -> Result<&'static Device, FenceError> {
    static OPENED: OnceLock<Result<Device, FenceError>> = OnceLock::new();
    let answer = OPENED.get_or_init(|| {
        let device = Device::open()?;
        device.barrier(Way::Hybrid)?;
        Ok(device)
    });
    answer.as_ref().map_err(|error| *error)
}

/// A full barrier on every processor that runs a thread of the process.
pub(super) fn barrier() -> Result<(), FenceError> {
    open()?.barrier(Way::Hybrid).map(drop)
}

fn refused(error: io::Error) -> FenceError {
    FenceError::new(Backend::Module, error.raw_os_error().unwrap_or(libc::EIO))
}
