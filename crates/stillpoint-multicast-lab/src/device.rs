//! `int ioctl(int fd, unsigned long request, ...)` on `/dev/stillpoint_membarrier`, which exists if the kernel module of this
//! project is loaded, and the library's heavy fences by the module. Its interface is `kernel/include/stillpoint_membarrier.h`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::fence;

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
/// that number moves from 5 to 24 when the guessed inputs are halved and doubled. In the worst of those cases, a barrier with this
/// threshold is 39 % slower than the better of the two, and none of the thresholds that the simulator compares does better. A test
/// compares the threshold with `docs/design/kernel.md`.
pub const THRESHOLD: u32 = 16;
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
    /// use stillpoint_multicast_lab::device::Way;
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
/// use stillpoint_multicast_lab::device::{Device, Info, Refused, Way, prefer};
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
/// # Ok::<(), Refused>(())
/// ```
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// # Errors
    /// If the module is not loaded, or this process may not open it.
    pub fn open() -> Result<Self, Refused> {
        OpenOptions::new().read(true).write(true).open(DEVICE).map(Self).map_err(Refused::from)
    }

    /// Issues a full barrier on every processor that runs a thread of the process, and returns the module's report of it.
    ///
    /// # Errors
    /// If the module is of another version; otherwise the errors of its interface.
    pub fn barrier(&self, way: Way) -> Result<Request, Refused> {
        let threshold = if way == Way::Hybrid { THRESHOLD } else { 0 };
        let percent = if way == Way::Split { PERCENT } else { 0 };
        let mut request =
            Request { version: VERSION, strategy: way as u32, percent, threshold, ..Request::default() };
        // SAFETY: the kernel reads and writes the request, whose size is in the number.
        unsafe { self.ask(BARRIER, &mut request) }?;
        // Another device may also answer 0, but does not fill in the time of a barrier.
        if request.total_ns == 0 { Err(Refused(libc::ENOTTY)) } else { Ok(request) }
    }

    /// The counts of the module since it was loaded, for all its users.
    ///
    /// # Errors
    /// If the device refuses the request.
    pub fn info(&self) -> Result<Info, Refused> {
        let mut info = Info::default();
        // SAFETY: the kernel writes the information, whose size is in the number.
        unsafe { self.ask(INFO, &mut info) }?;
        Ok(info)
    }

    /// # Safety
    /// The request is for a structure of this type.
    unsafe fn ask<T>(&self, request: libc::c_ulong, structure: &mut T) -> Result<(), Refused> {
        // SAFETY: the request is for a structure of this type, by the caller's promise, and the structure is borrowed meanwhile.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(structure)) } {
            -1 => Err(io::Error::last_os_error().into()),
            _ => Ok(()),
        }
    }
}

/// The index in `Way::ALL` of the way that the library's own barriers use.
static PREFERRED: AtomicUsize = AtomicUsize::new(Way::Hybrid as usize);

/// Lets the library's barriers use this way from now on, for programs that compare ways.
pub fn prefer(way: Way) {
    // Relaxed: each way is a barrier, so it does not matter which one a concurrent caller uses.
    PREFERRED.store(way as usize, Ordering::Relaxed);
}

/// Lets the library fence by the module, in the whole process. Tries one barrier first.
///
/// # Errors
/// If the module refuses it, or the library fences by other means already.
pub fn take_over() -> Result<(), String> {
    let device = Device::open().map_err(|error| error.to_string())?;
    device.barrier(Way::Hybrid).map_err(|error| error.to_string())?;
    // If there is one already, this one is closed.
    let _ = DEVICE_OF_FENCES.set(device);
    // SAFETY: a barrier of the module is a full barrier on every processor that runs a thread of the process, and `barrier` is a
    // sequentially consistent fence of its caller: the module executes one for it.
    unsafe { fence::set_heavy(barrier) }.map_err(|error| error.to_string())
}

static DEVICE_OF_FENCES: OnceLock<Device> = OnceLock::new();

/// A full barrier on every processor that runs a thread of the process.
fn barrier() -> Result<(), i32> {
    // Relaxed: see `prefer`.
    let way = Way::ALL[PREFERRED.load(Ordering::Relaxed)];
    let device = DEVICE_OF_FENCES.get().ok_or(libc::ENODEV)?;
    // The process may have the device's number, but not its file, or another one: some programs close every file in the child of a `fork`.
    let answer = device.barrier(way).or_else(|_| Device::open()?.barrier(way));
    answer.map(drop).map_err(|error| error.raw_os_error())
}

/// Why the module has not done what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(i32);

impl Refused {
    /// The error number of the system call, as in `errno.h`.
    pub fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::ENOENT | libc::ENODEV | libc::ENXIO => f.write_str(
                "the kernel module stillpoint_membarrier is not loaded; see `kernel/` on how to load it",
            ),
            libc::EPROTONOSUPPORT => f.write_str(
                "the kernel module stillpoint_membarrier is of another version; build and load the one of this version",
            ),
            number => write!(
                f,
                "the kernel module refused ({}); the process needs permission to open {DEVICE}",
                io::Error::from_raw_os_error(number)
            ),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = |number| Refused(number).to_string();
        assert!(text(libc::ENOENT).contains("not loaded"));
        assert!(text(libc::EPROTONOSUPPORT).contains("another version"));
        assert!(text(libc::EACCES).contains("Permission denied") && text(libc::EACCES).contains(DEVICE));
    }
}
