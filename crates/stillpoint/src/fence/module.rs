//! `int ioctl(int fd, unsigned long request, ...)` on `/dev/stillpoint_membarrier`, where the kernel module of this project
//! is loaded. Its interface is `kernel/include/stillpoint_membarrier.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use super::{Backend, FenceError};

const DEVICE: &str = "/dev/stillpoint_membarrier";
/// Of the interface.
const VERSION: u32 = 1;
/// `_IOWR(0xd7, 1, struct still_mb_request)`
const BARRIER: libc::c_ulong = 0xc040_d701;
/// A hybrid of flat, up to so many processors, and tree.
const HYBRID: u32 = 4;
const THRESHOLD: u32 = 16;

/// `struct still_mb_request`
#[derive(Debug, Default)]
#[repr(C)]
struct Request {
    version: u32,
    strategy: u32,
    flags: u32,
    percent: u32,
    threshold: u32,
    reserved: u32,
    receivers: u32,
    root_sends: u32,
    sends: u32,
    depth: u32,
    longest_path: u32,
    refused: u32,
    send_ns: u64,
    total_ns: u64,
}

const _: () = assert!(size_of::<Request>() == 64, "the size is part of the number of the ioctl");

/// Opens the device and tries one barrier, once; remembers the answer.
pub(super) fn open() -> Result<&'static File, FenceError> {
    static DEVICE_FILE: OnceLock<Result<File, FenceError>> = OnceLock::new();
    let answer = DEVICE_FILE.get_or_init(|| {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(refused)?;
        barrier_by(&file)?;
        Ok(file)
    });
    answer.as_ref().map_err(|error| *error)
}

/// A full barrier on every processor that runs a thread of the process.
pub(super) fn barrier() -> Result<(), FenceError> {
    barrier_by(open()?)
}

fn barrier_by(file: &File) -> Result<(), FenceError> {
    let mut request =
        Request { version: VERSION, strategy: HYBRID, threshold: THRESHOLD, ..Request::default() };
    // SAFETY: the kernel reads and writes the request, whose size is in the number.
    match unsafe { libc::ioctl(file.as_raw_fd(), BARRIER, &raw mut request) } {
        -1 => Err(refused(io::Error::last_os_error())),
        _ => Ok(()),
    }
}

fn refused(error: io::Error) -> FenceError {
    FenceError::new(Backend::Module, error.raw_os_error().unwrap_or(libc::EIO))
}
