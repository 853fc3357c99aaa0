//! Runs the guests one after the other, and decides which sessions count.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::qemu::cpio::Archive;
use stillpoint_harness::qemu::needs::{self, Needs};
use stillpoint_harness::qemu::{Accel, Ending, Guest, MEMORY, START, Session};
use stillpoint_harness::{interrupt, output};

use super::console::{self, Report};
use super::density::{self, Density};
use super::hog;
use super::options::Options;
use super::postmark;
use super::pressure;
use super::ratio;
use super::settings::{self, Setting};
use super::wire::{Load, Measurement, ORDER, Order};

/// How long a guest may take to start under KVM before software emulation is tried instead.
const TRIAL: Duration = Duration::from_secs(20);

/// The shortest time over which clocks are compared: the host reads the console ten times a second.
const LEAST_COMPARED: Duration = Duration::from_secs(2);

/// A guest that has run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Ran {
    pub(super) title: String,
    #[serde(skip)]
    pub(super) baseline: bool,
    pub(super) accel: String,
    pub(super) kernel: String,
    pub(super) clock: String,
    pub(super) wall_s: f64,
    /// Seconds of the guest's clock in a second of the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clock_rate: Option<f64>,
    /// How long QEMU's threads waited for a CPU of the host, over the time of the run and the number of virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting_share: Option<f64>,
    pub(super) peers: BTreeMap<String, String>,
}

impl Ran {
    /// What it was, in a line.
    pub(super) fn about(&self) -> String {
        let Self { title, kernel, accel, clock, wall_s, .. } = self;
        let rate = self.clock_rate.map_or_else(String::new, |rate| format!(" at {rate:.2} of the host's"));
        let waited = self.waiting_share.map_or_else(String::new, |share| {
            format!("; its virtual CPUs waited for the host {:.0} % of the time", share * 100.0)
        });
        format!("Guest, {title}: {kernel}, {accel}, clock {clock}{rate}, {wall_s:.0} s{waited}")
    }
}

/// All that the guests of a run have in common.
#[derive(Debug)]
pub(super) struct Lab {
    needs: Needs,
    host_cpus: Vec<usize>,
    accel: Accel,
    /// The program for the guests.
    program: Vec<u8>,
    order: Measurement,
    /// The first file system of those that measure.
    files: tempfile::NamedTempFile,
    /// What the monitors of these guests are told, if they have balloons.
    monitor: Option<tempfile::TempDir>,
    limit: Duration,
    transcript: Option<File>,
}

impl Lab {
    /// Builds what is missing, and writes what the guests start from.
    pub(super) fn new(
        options: &Options,
        needs: Needs,
        host_cpus: Vec<usize>,
        transcript: Option<File>,
    ) -> Result<Self, Stop> {
        let (order, measured) = settings::order(options);
        let program = needs.program.read()?;
        let monitor = order.loads.contains(&Load::Balloon).then(pressure::monitor).transpose()?;
        let files = first_files(&Order::Measure(order.clone()), &program, &needs.kernel)?;
        let limit = options.limit.unwrap_or(START + measured * 4);
        Ok(Self { needs, host_cpus, accel: options.accel, program, order, files, monitor, limit, transcript })
    }

    /// The rows, the guests that gave them, and the failures of the other guests.
    pub(super) fn run_all(&mut self, settings: &[Setting]) -> (Vec<Row>, Vec<Ran>, Vec<String>) {
        let (mut rows, mut guests, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        let progress = Progress::new(settings.len());
        for setting in settings {
            progress.stage(&setting.title());
            progress.begin(setting.title());
            let result = self.run(setting);
            progress.step();
            match result {
                Ok((report, ran)) => {
                    rows.extend(report.rows.into_iter().flat_map(|row| setting.rows(row, &ran)));
                    guests.push(ran);
                }
                Err(_) if interrupt::requested() => {}
                Err(reason) => failures.push(format!("{}: {reason}", setting.title())),
            }
            if interrupt::requested() {
                break;
            }
        }
        ratio::insert(&mut rows);
        (rows, guests, failures)
    }

    /// Runs one guest: under KVM if it starts there, else by software emulation.
    fn run(&mut self, setting: &Setting) -> Result<(Report, Ran), String> {
        if self.accel == Accel::Auto {
            self.accel = Accel::Tcg;
            if needs::has_kvm() {
                let sessions = self.sessions(setting, Accel::Kvm, TRIAL, |guest| guest.run())?;
                let goes = |session: &Session| {
                    session.ending == Ending::Interrupted || console::has_begun(&session.console)
                };
                if sessions.iter().any(goes) {
                    self.accel = Accel::Kvm;
                    return judge_all(sessions, setting, Accel::Kvm);
                }
                output::tell("KVM does not start the guest: software emulation is used instead");
            }
        }
        let start_limit = self.limit.min(START * setting.guests() as u32);
        let sessions = self.sessions(setting, self.accel, start_limit, |guest| guest.run_or_start_again())?;
        judge_all(sessions, setting, self.accel)
    }

    /// Runs the guests of a setting to their ends, all at once.
    fn sessions(
        &mut self,
        setting: &Setting,
        accel: Accel,
        start_limit: Duration,
        run: fn(&Guest<'_>) -> Result<Session, String>,
    ) -> Result<Vec<Session>, String> {
        let files_of = |order: &Order| {
            first_files(order, &self.program, &self.needs.kernel).map_err(|stop| stop.to_string())
        };
        let own = |density: Density| {
            let contenders = vec![density.contender.to_owned()];
            let order = Order::Measure(Measurement { contenders, ..self.order.clone() });
            density::compressed(files_of(&order)?.path())
        };
        let own = setting.density.map(own).transpose()?;
        let purpose = console::purpose();
        let monitor = self.monitor.as_ref().map(|folder| folder.path().join(pressure::MONITOR));
        let guest = Guest {
            qemu: &self.needs.qemu,
            kernel: &self.needs.kernel,
            files: own.as_ref().unwrap_or(&self.files).path(),
            purpose: &purpose,
            accel,
            vcpus: setting.vcpus,
            memory: match setting.density {
                Some(density) => density.memory(),
                None if monitor.is_some() => pressure::WITH_BALLOON,
                None => MEMORY,
            },
            monitor: monitor.as_deref(),
            host_cpus: &self.host_cpus,
            limit: self.limit,
            start_limit,
        };
        let all = || {
            thread::scope(|scope| {
                let guests: Vec<_> = (0..setting.guests()).map(|_| scope.spawn(|| run(&guest))).collect();
                let panicked = |_| Err("the thread of a guest panicked".to_owned());
                guests.into_iter().map(|guest| guest.join().unwrap_or_else(panicked)).collect()
            })
        };
        let sessions: Result<Vec<Session>, String> = match setting.neighbour.bursts() {
            Some(bursts) => {
                let files = files_of(&Order::Disturb(bursts))?;
                Guest { files: files.path(), monitor: None, ..guest }.beside(all)?
            }
            None => {
                let hogs = if setting.hogs { self.host_cpus.as_slice() } else { &[] };
                hog::beside(hogs, &std::hint::spin_loop, all)?
            }
        };
        let sessions = sessions?;
        sessions.iter().try_for_each(|session| session.keep(self.transcript.as_mut()))?;
        Ok(sessions)
    }
}

/// What a guest finds when it starts: this program, the order, and folders to mount on.
fn first_files(order: &Order, program: &[u8], kernel: &Path) -> Result<tempfile::NamedTempFile, Stop> {
    let mut archive = Archive::to_start_from();
    let mut others = Vec::new();
    let loads = if let Order::Measure(order) = order { order.loads.as_slice() } else { &[] };
    for load in loads {
        others.extend(match load {
            Load::Postmark => postmark::files().map_err(Stop::Failed)?,
            Load::Swap | Load::Balloon => {
                archive.folder(&load.name());
                pressure::files(*load, kernel).map_err(Stop::Failed)?
            }
            _ => Vec::new(),
        });
    }
    let order = serde_json::to_vec(order)
        .map_err(|error| Stop::Failed(format!("the order cannot be written as JSON: {error}")))?;
    let mut add = |name: &str, executable, bytes: &[u8]| archive.file(name, executable, bytes);
    add("init", true, program)
        .and_then(|()| add(ORDER, false, &order))
        .and_then(|()| others.iter().try_for_each(|(name, bytes)| add(name, true, bytes)))
        .ok_or_else(|| Stop::Failed("the program is too large for the guest".to_owned()))?;
    let failed = |error| Stop::Failed(format!("cannot write a temporary file: {error}"));
    let mut files = tempfile::Builder::new().prefix("stillpoint-guest-").tempfile().map_err(failed)?;
    files.write_all(&archive.finish()).map_err(failed)?;
    Ok(files)
}

/// The result of the guests of a setting.
fn judge_all(sessions: Vec<Session>, setting: &Setting, accel: Accel) -> Result<(Report, Ran), String> {
    let judged = sessions.into_iter().map(|session| {
        let is_out_of_memory = console::has_run_out_of_memory(&session.console);
        judge(session, setting, accel).or_else(|reason| match setting.density {
            Some(density) if is_out_of_memory => {
                let (title, accel, clock) = (setting.title(), accel.name(), "unknown".to_owned());
                Ok((density.out_of_memory(), Ran { title, accel, clock, ..Ran::default() }))
            }
            _ => Err(reason),
        })
    });
    let mut judged = judged.collect::<Result<Vec<_>, String>>()?;
    let result = if setting.density.is_some() { density::worst(judged) } else { judged.pop() };
    result.ok_or_else(|| "no guest has run".to_owned())
}

/// The result of a session. A complete result counts, however the machine ended afterwards.
fn judge(session: Session, setting: &Setting, accel: Accel) -> Result<(Report, Ran), String> {
    let Session { wall, measured, waited, .. } = session;
    let report = console::read(&session.console)
        .map_err(|failure| session.without_result(console::BEGINS, failure))?;
    let about = &report.about;
    if about.vcpus != setting.vcpus {
        return Err(format!("the guest's kernel runs on only {} virtual CPUs", about.vcpus));
    }
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    let share = |waited: Duration| waited.as_secs_f64() / wall.as_secs_f64() / setting.vcpus as f64;
    let ran = Ran {
        title: setting.title(),
        baseline: setting.scenario() == settings::BASELINE,
        accel: accel.name(),
        kernel: about.kernel.clone(),
        clock: about.clock.clone(),
        wall_s: rounded(wall.as_secs_f64()),
        clock_rate: measured
            .filter(|measured| *measured >= LEAST_COMPARED)
            .map(|measured| rounded(report.seconds / measured.as_secs_f64())),
        waiting_share: waited.map(|waited| rounded(share(waited))),
        peers: about.peers.clone(),
    };
    Ok((report, ran))
}

#[cfg(test)]
mod tests {
    use super::super::settings::Neighbour;
    use super::super::wire::{About, BEGIN, Closing, END, line};
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    const SETTING: Setting =
        Setting { vcpus: 4, host_cpus: 2, hogs: false, neighbour: Neighbour::None, density: None };

    fn session(ending: Ending, console: String, complaints: &str) -> Session {
        Session {
            ending,
            console: console.into_bytes(),
            complaints: complaints.to_owned(),
            wall: Duration::from_secs(10),
            measured: Some(Duration::from_secs(8)),
            waited: Some(Duration::from_secs(20)),
        }
    }

    fn whole(vcpus: usize) -> String {
        let about =
            About { kernel: "Linux 6.1".to_owned(), vcpus, clock: "tsc".to_owned(), peers: BTreeMap::new() };
        format!("{}\n{}\n", line(BEGIN, &about), line(END, &Closing { rows: 0, seconds: 8.04 }))
    }

    fn ended(code: i32) -> Ending {
        Ending::Exit(ExitStatus::from_raw(code << 8))
    }

    fn reason(session: Session) -> String {
        judge(session, &SETTING, Accel::Tcg).unwrap_err()
    }

    #[test]
    fn a_whole_result_counts_however_the_machine_went_off() {
        for ending in [ended(0), ended(1), Ending::Limit(Duration::from_secs(60))] {
            let (_, ran) = judge(session(ending, whole(4), ""), &SETTING, Accel::Tcg).unwrap();
            assert_eq!(
                (ran.accel.as_str(), ran.waiting_share, ran.clock_rate),
                ("tcg", Some(0.5), Some(1.005))
            );
        }
    }

    #[test]
    fn a_guest_without_a_result_says_how_it_ended() {
        let booting = || "booting\n".to_owned();
        let limit = Ending::Limit(Duration::from_secs(60));
        let late = reason(session(limit, booting(), ""));
        assert!(late.contains("ended after 1m") && late.contains("booting"), "{late}");
        let refused = reason(session(ended(1), String::new(), "qemu: no such\nmachine"));
        assert!(refused.contains("exit status: 1") && refused.contains("no such / machine"), "{refused}");
        let silent = reason(session(ended(0), booting(), "a warning"));
        assert!(silent.contains("did not start the program") && !silent.contains("warning"), "{silent}");
        let panic = "Kernel panic - not syncing: No working init found.\n".to_owned();
        let panic = reason(session(ended(0), panic, ""));
        assert_eq!(panic, "the guest's kernel panicked: No working init found.");
    }

    #[test]
    fn only_a_panic_for_want_of_memory_is_a_result() {
        let density = Some(density::Density { guests: 1, contender: "stillpoint/guard" });
        let judged = |why: &str| {
            let console = format!("Kernel panic - not syncing: {why}\n");
            judge_all(vec![session(ended(0), console, "")], &Setting { density, ..SETTING }, Accel::Tcg)
        };
        let rows = judged("System is deadlocked on memory").unwrap().0.rows;
        assert!(!rows.is_empty() && rows.iter().all(|row| density::is_out_of_memory(&row.row)));
        let other = judged("VFS: Unable to mount root fs").unwrap_err();
        assert!(other.contains("VFS"), "{other}");
    }

    #[test]
    fn a_guest_with_fewer_processors_than_ordered_does_not_count() {
        let reason = reason(session(ended(0), whole(1), ""));
        assert!(reason.contains("only 1 virtual CPUs"), "{reason}");
    }
}
