//! `int ioctl(int fd, unsigned long request, ...)` on `/dev/stillpoint_membarrier`, which exists if the kernel module of this
//! project is loaded. Its interface is `kernel/include/stillpoint_membarrier.h`.
//!
//! Public for the project's own programs, which choose strategies; its interface may change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint_sys::sync::Lasting;

use super::{Backend, FenceError};

pub const DEVICE: &str = "/dev/stillpoint_membarrier";
/// The version of the interface.
pub const VERSION: u32 = 1;
/// `_IOWR(0xd7, 1, struct still_mb_request)`
const BARRIER: libc::c_ulong = 0xc040_d701;
/// `_IOR(0xd7, 0, struct still_mb_info)`
const INFO: libc::c_ulong = 0x8038_d700;
/// Up to this number of receivers, the library's barriers are flat; with more, they use a tree.
///
/// The threshold is not an optimum: it is not known with how many receivers the two take equally long. In the simulator,
/// that number moves from 3 to 23 when the guessed inputs are halved and doubled. In the worst of those cases, a barrier with this
/// threshold is 37 % slower than the better of the two, and none of the thresholds that the simulator compares does better. A test
/// compares the threshold with `docs/guide/simulate.md`.
pub const THRESHOLD: u32 = 12;
/// The share of its receivers that a sender of `Way::Split` delegates, in percent. The simulator uses the same share.
pub const PERCENT: u32 = 30;

/// `enum still_mb_strategy`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Way {
    SmpCall = 0,
    Flat = 1,
    Tree = 2,
    Split = 3,
    Hybrid = 4,
}

impl Way {
    /// All ways, each at the index that is its number.
    pub const ALL: [Way; 5] = [Way::SmpCall, Way::Flat, Way::Tree, Way::Split, Way::Hybrid];

    /// The name, as used in all programs.
    ///
    /// ```
    /// use stillpoint::fence::module::Way;
    ///
    /// assert_eq!(Way::ALL.map(Way::name), ["smp-call", "flat", "tree", "split", "hybrid"]);
    /// ```
    pub fn name(self) -> &'static str {
        ["smp-call", "flat", "tree", "split", "hybrid"][self as usize]
    }
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

/// `struct still_mb_info`
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Info {
    pub version: u32,
    pub strategies: u32,
    pub flags: u32,
    pub skips_lazy: u32,
    pub operations: u64,
    pub refused: u64,
    pub interrupts: u64,
    pub counted: u64,
    pub depths: u64,
}

const _: () = assert!(size_of::<Request>() == 64, "the size is part of the number of the ioctl");
const _: () = assert!(size_of::<Info>() == 56, "the size is part of the number of the ioctl");

/// The open device.
///
/// ```
/// use stillpoint::fence::module::{Device, Info, Way, prefer};
///
/// prefer(Way::Tree); // also for the library's own barriers
/// match Device::open() {
///     Ok(device) => {
///         let before: Info = device.info()?;
///         device.barrier(Way::Flat)?;
///         println!("{}: {} interrupts", Way::Flat.name(), device.info()?.interrupts - before.interrupts);
///     }
///     Err(reason) => println!("{reason}"), // the module is not loaded, or the process may not open it
/// }
/// # Ok::<(), stillpoint::fence::FenceError>(())
/// ```
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// # Errors
    /// If the module is not loaded, or this process may not open it.
    pub fn open() -> Result<Self, FenceError> {
        OpenOptions::new().read(true).write(true).open(DEVICE).map(Self).map_err(refused)
    }

    /// Issues a full barrier on every processor that runs a thread of the process, and returns the module's report of it.
    ///
    /// # Errors
    /// If the module is of another version; otherwise the errors of its interface.
    pub fn barrier(&self, way: Way) -> Result<Request, FenceError> {
        let threshold = if way == Way::Hybrid { THRESHOLD } else { 0 };
        let percent = if way == Way::Split { PERCENT } else { 0 };
        let mut request =
            Request { version: VERSION, strategy: way as u32, percent, threshold, ..Request::default() };
        // SAFETY: the kernel reads and writes the request, whose size is in the number.
        unsafe { self.ask(BARRIER, &mut request) }?;
        Ok(request)
    }

    /// The counts of the module since it was loaded, for all its users.
    ///
    /// # Errors
    /// If the device refuses the request.
    pub fn info(&self) -> Result<Info, FenceError> {
        let mut info = Info::default();
        // SAFETY: the kernel writes the information, whose size is in the number.
        unsafe { self.ask(INFO, &mut info) }?;
        Ok(info)
    }

    /// # Safety
    /// The request is for a structure of this type.
    unsafe fn ask<T>(&self, request: libc::c_ulong, structure: &mut T) -> Result<(), FenceError> {
        // SAFETY: the request is for a structure of this type, by the caller's promise, and the structure is borrowed meanwhile.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(structure)) } {
            -1 => Err(refused(io::Error::last_os_error())),
            _ => Ok(()),
        }
    }
}

/// The index in `Way::ALL` of the way that the library's own barriers use.
static PREFERRED: AtomicUsize = AtomicUsize::new(Way::Hybrid as usize);

/// Lets the barriers of [`Backend::Module`] use this way from now on, for programs that compare ways.
pub fn prefer(way: Way) {
    // Relaxed: each way is a barrier, so it does not matter which one a concurrent caller uses.
    PREFERRED.store(way as usize, Ordering::Relaxed);
}

/// Opens the device, tries one barrier, and keeps the answer. Threads that do so at the same time get the same answer. No thread
/// waits for another, so the child of a `fork` during this call does not wait for ever.
pub(super) fn open() -> Result<&'static Device, FenceError> {
    static ANSWER: Lasting<Result<Device, FenceError>> = Lasting::new();

    let find = || Device::open().and_then(|device| device.barrier(Way::Hybrid).map(|_| device));
    ANSWER.get_or_make(find).as_ref().map_err(|error| *error)
}

/// A full barrier on every processor that runs a thread of the process.
pub(super) fn barrier() -> Result<(), FenceError> {
    // Relaxed: see `prefer`.
    let way = Way::ALL[PREFERRED.load(Ordering::Relaxed)];
    let device = open()?;
    let answer = device.barrier(way).or_else(|error| match error.raw_os_error() {
        // The process has the device's number, but not its file. `fork` copies files before memory: if another thread was in
        // `open` during the `fork`, the child may have got the number only. Other programs close every file in a child.
        libc::EBADF | libc::ENOTTY => Device::open()?.barrier(way),
        _ => Err(error),
    });
    answer.map(drop)
}

fn refused(error: io::Error) -> FenceError {
    FenceError::new(Backend::Module, error.raw_os_error().unwrap_or(libc::EIO))
}
