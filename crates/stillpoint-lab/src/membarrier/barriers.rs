//! The contenders: each makes every thread of the process execute a barrier.

use std::io;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};
use stillpoint_harness::experiment::control::contender;
use stillpoint_multicast::{Strategy, signals};
use stillpoint_multicast_lab::device::{Device, Way};

/// One barrier, as measured by its initiator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    pub(super) latency: Duration,
    /// Until the initiator sent its last message, for contenders that report it.
    pub(super) sent_in: Option<Duration>,
    /// Messages that the initiator sent in place of other threads.
    pub(super) helped: usize,
}

/// The module's way of a contender.
pub(super) fn way_of(name: &str) -> Option<Way> {
    let named = contender(name).strip_prefix("module/")?;
    Way::ALL.into_iter().find(|way| way.name() == named)
}

/// A contender; each initiator has its own.
#[derive(Debug)]
pub(super) enum Barrier {
    Syscall,
    Mprotect(Page),
    Signal(Strategy),
    Module(Device, Way),
}

impl Barrier {
    /// The contender of that name.
    pub(super) fn of(name: &str) -> Result<Self, String> {
        match contender(name) {
            "syscall" => {
                let answer = membarrier(MembarrierCommand::RegisterPrivateExpedited);
                answer.map(|()| Self::Syscall).map_err(|error| format!("membarrier: {error}"))
            }
            "mprotect" => Page::new().map(Self::Mprotect).map_err(|error| format!("mprotect: {error}")),
            "signal/flat" => Ok(Self::Signal(Strategy::Flat)),
            "signal/tree" => Ok(Self::Signal(Strategy::Tree)),
            name => {
                let way = way_of(name).ok_or_else(|| format!("{name} is no barrier"))?;
                Device::open().map(|device| Self::Module(device, way)).map_err(|error| error.to_string())
            }
        }
    }

    /// One barrier, which must reach this many threads.
    pub(super) fn fence(&self, threads: usize) -> Result<Timed, String> {
        let begin = Instant::now();
        let (sent_in, helped) = match self {
            Self::Syscall => {
                membarrier(MembarrierCommand::PrivateExpedited)
                    .map_err(|error| format!("membarrier: {error}"))?;
                (None, 0)
            }
            Self::Mprotect(page) => {
                page.fence().map_err(|error| format!("mprotect: {error}"))?;
                (None, 0)
            }
            &Self::Signal(strategy) => {
                let multicast = signals::multicast().map_err(|error| error.to_string())?;
                let report = multicast.strategy(strategy).fence();
                let report = report.map_err(|error| error.to_string())?;
                if report.receivers != threads {
                    return Err(format!(
                        "the barrier reached only {} of {threads} threads",
                        report.receivers
                    ));
                }
                (Some(report.sent_in), report.helped)
            }
            Self::Module(device, way) => {
                let told = device.barrier(*way).map_err(|error| error.to_string())?;
                (Some(Duration::from_nanos(told.send_ns)), 0)
            }
        };
        Ok(Timed { latency: begin.elapsed(), sent_in, helped })
    }
}

/// A page whose protection is changed. To take write access away, the kernel interrupts every processor that may have the
/// page in its TLB, and the interrupt is a barrier. Programs fenced in this way before membarrier existed; the row also
/// shows what the kernel's TLB shootdown costs.
#[derive(Debug)]
pub(super) struct Page {
    address: *mut libc::c_void,
    size: usize,
}

// SAFETY: only this value uses the page, which may be used on any thread.
unsafe impl Send for Page {}

impl Page {
    fn new() -> io::Result<Self> {
        let size = rustix::param::page_size();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which overlaps nothing.
        let address = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { address, size }) }
    }

    fn protect(&self, access: libc::c_int) -> io::Result<()> {
        // SAFETY: only this value uses the mapping, and it writes only after it has allowed writes.
        match unsafe { libc::mprotect(self.address, self.size, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// All that a caller has to do for a barrier: allow writes, write, and forbid writes.
    fn fence(&self) -> io::Result<()> {
        self.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: mapped, and writable; the page must be in use, or nothing has to be taken away.
        unsafe { self.address.cast::<u8>().write_volatile(1) };
        self.protect(libc::PROT_READ)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.address, self.size) };
    }
}
