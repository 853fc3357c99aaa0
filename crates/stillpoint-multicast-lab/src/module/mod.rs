//! The command `module`: builds the kernel module and its tests, and runs them in virtual machines.
//!
//! A defect in the module can crash the machine. So the module is loaded into a distribution's kernel in QEMU, under software
//! emulation if need be, with its test program as the first process. The result is what the test program prints on the
//! console. Times there mean nothing; ratios of the readers' rates show at most a shape.

pub mod inside;
mod parts;
mod report;
mod workshop;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::{JsonFlag, parse_duration};
use stillpoint_harness::machine::{Machine, cpus};
use stillpoint_harness::output::json::Target;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::qemu::{self, Accel, Guest, MEMORY, Purpose, START, needs};
use stillpoint_harness::{interrupt, output};

use self::parts::Parts;
use self::report::{Check, Outcome, Rate};

/// Numbers of virtual CPUs. With one initiator, and the others as receivers, the longest paths have 2, 3 and 4 steps.
const VCPUS: [u16; 3] = [4, 8, 16];

/// The flags of `stillpoint module`.
#[derive(Debug, Args)]
pub struct Options {
    /// Numbers of virtual CPUs, a machine for each [default: 4,8,16]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=255))]
    vcpus: Vec<u16>,

    /// Seconds of the guest's clock for each timed part
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,

    /// How often the slow side of the litmus test must get inside for each strategy
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    entries: u32,

    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value_t = Accel::Tcg)]
    accel: Accel,

    /// End a machine that takes longer than this
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    limit: Duration,

    /// The folder of the module's sources [default: `kernel` in the repository that this program was built from]
    #[arg(long, value_name = "FOLDER")]
    sources: Option<PathBuf>,

    /// The version of the kernel, such as 6.1.0-13-cloud-amd64, with image and headers installed [default: the newest,
    /// a cloud kernel first]
    #[arg(long, value_name = "VERSION", conflicts_with_all = ["kernel", "headers"])]
    release: Option<String>,

    /// The kernel's image, a file such as vmlinuz-...
    #[arg(long, value_name = "FILE", requires = "headers")]
    kernel: Option<PathBuf>,

    /// The folder of that kernel's headers
    #[arg(long, value_name = "FOLDER", requires = "kernel")]
    headers: Option<PathBuf>,

    /// QEMU [default: qemu-system-x86_64 in PATH]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,

    /// Write what the machines print on their consoles to FILE
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,

    #[command(flatten)]
    json: JsonFlag,
}

/// The JSON of one machine.
#[derive(Debug, Serialize)]
struct Tested {
    vcpus: usize,
    kernel: String,
    accel: String,
    wall_s: f64,
    checks: Vec<Check>,
    rates: Vec<Rate>,
}

impl Tested {
    fn count(&self, outcome: Outcome) -> usize {
        self.checks.iter().filter(|check| check.outcome == outcome).count()
    }
}

#[derive(Debug, Serialize)]
struct Extra {
    /// Why nothing was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    machines: Vec<Tested>,
}

/// Builds the module and tests it. If this machine lacks a part, says so, and succeeds. `peers` are those that the
/// program was built with.
pub fn run(options: &Options, peers: BTreeMap<String, String>) -> Result<(), Stop> {
    if options.accel == Accel::Kvm && !needs::has_kvm() {
        return Err(Stop::usage(
            "/dev/kvm cannot be opened: leave --accel out, or let this user read and write it",
        ));
    }
    let found = Parts::find(options)?;
    let target = Target::open(options.json.json.as_deref())?;
    let silent = target.takes_stdout();
    let say = |line: String| if silent { output::tell(line) } else { output::say(line) };
    let machine = Machine::look(peers);
    let parts = match found {
        Ok(parts) => parts,
        Err(missing) => {
            output::tell(format!("skipped: the module cannot be tested here: {missing}"));
            return target.write(&machine, &[], Extra { skipped: Some(missing), machines: Vec::new() });
        }
    };
    let mut transcript = qemu::transcript(options.console.as_deref())?;
    interrupt::listen();
    say(format!("{}, headers in {}", parts.kernel.display(), parts.headers.display()));
    let built = workshop::build(&parts)?;
    let vcpus = if options.vcpus.is_empty() { &VCPUS[..] } else { &options.vcpus };
    let (mut machines, mut failures) = (Vec::new(), Vec::new());
    let progress = Progress::new(vcpus.len());
    for &count in vcpus {
        let title = format!("{count} virtual CPUs");
        progress.begin(title.clone());
        let tested = boot(options, &parts, built.path(), usize::from(count), transcript.as_mut());
        progress.step();
        match tested {
            Ok(tested) => {
                show(&tested, &say);
                machines.push(tested);
            }
            Err(_) if interrupt::requested() => break,
            Err(reason) => failures.push(format!("{title}: {reason}")),
        }
    }
    if interrupt::requested() && machines.is_empty() && failures.is_empty() {
        return Err(Stop::Failed("interrupted before a machine was tested: nothing is written".to_owned()));
    }
    for tested in machines.iter().filter(|tested| tested.count(Outcome::Fail) > 0) {
        failures.push(format!(
            "{} virtual CPUs: {} checks failed",
            tested.vcpus,
            tested.count(Outcome::Fail)
        ));
    }
    for check in
        machines.iter().flat_map(|tested| &tested.checks).filter(|check| check.outcome == Outcome::Skip)
    {
        output::tell(format!("skipped: {}: {}", check.promise, check.detail));
    }
    target.write(&machine, &[], Extra { skipped: None, machines })?;
    if interrupt::requested() {
        output::tell("interrupted: not all machines were tested");
    }
    if failures.is_empty() { Ok(()) } else { Err(Stop::Failed(failures.join("; "))) }
}

/// Runs one machine to its end.
fn boot(
    options: &Options,
    parts: &Parts,
    files: &std::path::Path,
    vcpus: usize,
    transcript: Option<&mut File>,
) -> Result<Tested, String> {
    let purpose = Purpose {
        arguments: format!("{} {}", options.seconds, options.entries),
        begins: report::BEGINS,
        ends: report::ENDS,
    };
    let accel = match options.accel {
        Accel::Auto if needs::has_kvm() => Accel::Kvm,
        Accel::Auto => Accel::Tcg,
        accel => accel,
    };
    let guest = Guest {
        qemu: &parts.qemu,
        kernel: &parts.kernel,
        files,
        purpose: &purpose,
        accel,
        vcpus,
        memory: MEMORY,
        monitor: None,
        host_cpus: &cpus::allowed(),
        limit: options.limit,
        start_limit: options.limit.min(START),
    };
    let session = guest.run_or_start_again()?;
    session.keep(transcript)?;
    let report =
        report::read(&session.console).map_err(|reason| session.without_result(report::BEGINS, reason))?;
    if report.cpus != vcpus {
        return Err(format!("the guest's kernel runs on only {} virtual CPUs", report.cpus));
    }
    let wall_s = (session.wall.as_secs_f64() * 10.0).round() / 10.0;
    let report::Report { kernel, checks, rates, .. } = report;
    Ok(Tested { vcpus, kernel, accel: accel.name(), wall_s, checks, rates })
}

fn show(tested: &Tested, say: &impl Fn(String)) {
    let Tested { vcpus, kernel, accel, wall_s, .. } = tested;
    say(format!("\n{vcpus} virtual CPUs, Linux {kernel}, {accel}, {wall_s} s"));
    for check in &tested.checks {
        say(format!("  {} {}: {}", check.outcome.name(), check.promise, check.detail));
    }
    for rate in &tested.rates {
        let Rate { strategy, asked_per_s, reached_per_s, .. } = rate;
        let ratio = rate.ratio.map(|ratio| format!("{ratio:.2} times the sections beside no writer"));
        let says = ratio.or_else(|| Some(format!("void: {}", rate.void.as_deref()?))).unwrap_or_default();
        say(format!(
            "  rate liburcu: {strategy}: {asked_per_s} grace periods a second, {reached_per_s} reached: {says}"
        ));
    }
    let [passed, failed, skipped] =
        [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(|outcome| tested.count(outcome));
    say(format!("{} virtual CPUs: {passed} passed, {failed} failed, {skipped} skipped", tested.vcpus));
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.01 to 600".to_owned()),
    }
}
