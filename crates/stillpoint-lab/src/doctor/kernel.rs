//! What the kernel lets this process do: membarrier, real-time scheduling.

use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{MembarrierCommand, membarrier_query};
use stillpoint::fence;
use stillpoint_harness::machine::proc;
use stillpoint_multicast_lab::device::{Device, Way};

use crate::doctor::Finding;

pub(crate) fn findings() -> Vec<Finding> {
    vec![membarrier(), asymmetric(), module(), realtime()]
}

/// How to get cheap fences.
const MEMBARRIER: &str = "use Linux 4.14 or newer; a container's seccomp filter must allow membarrier";

fn membarrier() -> Finding {
    let query = membarrier_query();
    let names = [
        (MembarrierCommand::Global, "global"),
        (MembarrierCommand::GlobalExpedited, "global expedited"),
        (MembarrierCommand::PrivateExpedited, "private expedited"),
        (MembarrierCommand::PrivateExpeditedSyncCore, "private expedited sync core"),
        (MembarrierCommand::PrivateExpeditedRseq, "private expedited rseq"),
    ];
    let has: Vec<&str> = names
        .into_iter()
        .filter(|(command, _)| query.contains_command(*command))
        .map(|(_, name)| name)
        .collect();
    if has.is_empty() {
        Finding::absent(
            "membarrier",
            "the kernel offers no membarrier command",
            "readers pay a full fence each time they enter or protect",
            MEMBARRIER,
        )
    } else {
        Finding::present("membarrier", has.join(", "))
    }
}

fn asymmetric() -> Finding {
    match fence::asymmetric_supported() {
        Ok(()) => Finding::present("fences", "asymmetric: membarrier works, and is used"),
        Err(error) => Finding::absent(
            "fences",
            format!("symmetric: {error}"),
            "readers pay a full fence, some 5 to 20 ns, each time they enter or protect",
            MEMBARRIER,
        ),
    }
}

fn module() -> Finding {
    match Device::open().and_then(|device| device.barrier(Way::Hybrid)) {
        Ok(_) => {
            Finding::present("fences by module", "stillpoint_membarrier is loaded, and open to this process")
        }
        Err(error) => Finding::absent(
            "fences by module",
            error.to_string(),
            "barriers cannot go along a tree of interrupts, which pays off with many CPUs; where membarrier is refused, readers have to pay full fences",
            "nothing on few CPUs with membarrier; else build and load the module, as kernel/README.md says",
        ),
    }
}

fn realtime() -> Finding {
    const NICE_CAPABILITY: u64 = 1 << 23;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective =
        proc::field(&status, "CapEff").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
    let capable = effective & NICE_CAPABILITY != 0;
    let limit = getrlimit(Resource::Rtprio).current;
    let rights = match (capable, limit) {
        (true, _) => "CAP_SYS_NICE".to_owned(),
        (false, None) => "no limit on real-time priority".to_owned(),
        (false, Some(limit)) => format!("real-time priority up to {limit}"),
    };
    match try_realtime() {
        Ok(()) => {
            Finding::present("scheduling", format!("SCHED_FIFO is allowed ({rights}); {}", throttling()))
        }
        Err(error) => Finding::absent(
            "scheduling",
            format!("SCHED_FIFO is refused ({rights}): {error}"),
            "preempted region readers cannot be boosted to a real-time priority",
            "run as root, give the program CAP_SYS_NICE, or raise the limit of real-time priorities (ulimit -r)",
        ),
    }
}

/// Whether a thread may become a real-time thread, tried on a thread that ends at once.
fn try_realtime() -> Result<(), io::Error> {
    let attempt = || {
        let parameter = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameter outlives the call, and 0 is the calling thread.
        match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    std::thread::scope(|scope| {
        scope
            .spawn(attempt)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
    })
}

fn throttling() -> String {
    match proc::line("/proc/sys/kernel/sched_rt_runtime_us").as_deref() {
        Some("-1") => "real-time threads are not throttled".to_owned(),
        Some(micros) => format!("real-time threads get at most {micros} µs of each second"),
        None => "throttling of real-time threads unknown".to_owned(),
    }
}
