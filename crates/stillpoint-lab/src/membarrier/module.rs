//! The kernel module, by its own interface (`kernel/include/stillpoint_membarrier.h`), which lets a strategy be chosen.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::experiment::group;

const DEVICE: &str = "/dev/stillpoint_membarrier";
const VERSION: u32 = 1;
/// `_IOWR(0xd7, 1, struct still_mb_request)`
const BARRIER: libc::c_ulong = 0xc040_d701;

/// `enum still_mb_strategy`
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(super) enum Way {
    Builtin = 0,
    Flat = 1,
    Tree = 2,
    Hybrid = 4,
}

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

/// What to do to have a contender that needs the module.
pub(super) fn missing(contender: &str) -> Option<String> {
    let absent = group(contender) == "module" && !Path::new(DEVICE).exists();
    absent.then(|| {
        format!("module/* left out ({DEVICE} is not there): load the module of kernel/ as its guide says")
    })
}

#[derive(Debug)]
pub(super) struct Module(File);

impl Module {
    pub(super) fn open() -> Result<Self, String> {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE);
        file.map(Self).map_err(|error| format!("{DEVICE}: {error}"))
    }

    /// One barrier. Returns how long the initiator took to send, in nanoseconds.
    pub(super) fn fence(&self, way: Way) -> Result<u64, String> {
        let threshold = if matches!(way, Way::Hybrid) { 16 } else { 0 };
        let mut request = Request { version: VERSION, strategy: way as u32, threshold, ..Request::default() };
        // SAFETY: the kernel reads and writes the request, whose size is in the number.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), BARRIER, &raw mut request) } {
            -1 => {
                let (error, own) = (io::Error::last_os_error(), request.version);
                Err(format!("the module refuses: {error} (its version is {own}, this program's {VERSION})"))
            }
            _ => Ok(request.send_ns),
        }
    }
}
