//! The command `guest`: delays and grace periods inside virtual machines whose virtual CPUs the host preempts.
//!
//! The literature on preempted readers is about readers whose virtual CPU loses the host's CPU in the middle of a
//! read. Here, QEMU runs a distribution's kernel with this program, linked statically, as its first and only process.
//! In `baseline`, a guest has a CPU of the host for each virtual CPU. In `overcommit`, it has more virtual CPUs, or other
//! work or a busy second guest runs on the same CPUs. What the guests print comes back as rows.

mod console;
mod contenders;
mod deletes;
mod evaluate;
mod figures;
mod hog;
pub(crate) mod inside;
mod kernel;
mod lab;
mod options;
mod ratio;
mod settings;
mod show;
mod stores;
mod wire;

use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::{Machine, cpus};
use stillpoint_harness::output::json;
use stillpoint_harness::qemu::needs::{self, Needs};
use stillpoint_harness::qemu::{self, Accel};
use stillpoint_harness::results::{self, Results};
use stillpoint_harness::{interrupt, output};

use self::lab::{Lab, Ran};
use crate::peers;

pub(crate) use self::figures::FIGURES;

pub(crate) use self::options::Options;

/// Host CPUs that are used unless told otherwise: overcommit multiplies them.
const MOST_HOST_CPUS: usize = 4;

/// What the JSON says about the guests.
#[derive(Debug, Serialize)]
struct Extra {
    /// Why nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    guests: Vec<Ran>,
}

/// Runs the guests and prints their tables. If this machine lacks what guests need, says so, and succeeds.
pub(crate) fn run(options: &Options) -> Result<(), Stop> {
    let host_cpus = match &options.cpus {
        Some(list) => cpus::choose(Some(&list.0))?,
        None => cpus::choose(None)?.into_iter().take(MOST_HOST_CPUS).collect(),
    };
    let (host_cpus, settings) = if options.neighbour {
        settings::of_two_guests(&host_cpus)
    } else {
        let settings = settings::choose(host_cpus.len(), &options.vcpus, options.length.quick);
        (host_cpus, settings)
    };
    if options.accel == Accel::Kvm && !needs::has_kvm() {
        return Err(Stop::usage(
            "/dev/kvm cannot be opened: leave --accel out, or let this user read and write it",
        ));
    }
    let needs = Needs::find(options.qemu.as_deref(), options.kernel.as_deref(), options.init.as_deref())?;
    let results = Results::open(&options.results)?;
    let silent = results.takes_stdout();
    let machine = Machine::look(peers::versions());
    let needs = match needs {
        Ok(needs) => needs,
        Err(missing) => {
            let line = format!("skipped: no guest can be run here: {missing}");
            if silent {
                output::tell(line)
            } else {
                output::say(line)
            }
            let extra = Extra { skipped: Some(missing), guests: Vec::new() };
            return results.write(&machine, &[], extra, FIGURES);
        }
    };
    let transcript = qemu::transcript(options.console.as_deref())?;
    interrupt::listen();
    let mut lab = Lab::new(options, needs, host_cpus, transcript)?;
    if !silent {
        output::say(machine.summary());
    }
    let (rows, guests, failures) = lab.run_all(&settings);
    if !silent {
        show::tables(&rows, &guests);
    }
    results::check_interrupt(&rows)?;
    results.write(&machine, &rows, Extra { skipped: None, guests }, FIGURES)?;
    match failures.as_slice() {
        [] => json::judge(&rows),
        failures => Err(Stop::Failed(failures.join("; "))),
    }
}
