//! `stillpoint guest` with a script in the place of QEMU, and without QEMU. Other checks run real guests.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{json, stderr, stdout, stillpoint, told_by};
use crate::skip::skipped;

/// The values of `--accel`.
const TCG: &str = "tcg";
const AUTO: &str = "auto";

/// The memory of all guests of `--density`, in MiB.
const TOTAL: u64 = 340;

/// The files that a guest is made of, none of them real.
struct Parts {
    folder: TempDir,
    /// The name of the kernel among them.
    kernel: &'static str,
}

impl Parts {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kernel"), "kernel").unwrap();
        // The header of a static program for x86-64 with one segment, and that segment's.
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (program[16], program[18], program[32], program[54], program[56], program[64]) =
            (3, 62, 64, 56, 1, 1);
        fs::write(folder.path().join("init"), program).unwrap();
        Self { folder, kernel: "kernel" }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Runs guests on these CPUs. `fake` says what the script does.
    fn run(&self, fake: &str, cpus: &str, more: &[&str], accel: &str) -> Output {
        let (qemu, kernel, init) = (script(), self.path(self.kernel), self.path("init"));
        let parts = [
            "guest", "--accel", accel, "--cpus", cpus, "--qemu", &qemu, "--kernel", &kernel, "--init", &init,
        ];
        let arguments: Vec<&str> = parts.iter().chain(more).copied().collect();
        stillpoint(&arguments).env("FAKE", fake).output().expect("the program starts")
    }
}

fn script() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/fake_qemu.sh").to_string_lossy().into_owned()
}

/// A list of this many CPUs that this process may use, if there are enough.
fn cpus(count: usize) -> Option<String> {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
    let cpus: Vec<String> = allowed.take(count).map(|cpu| cpu.to_string()).collect();
    (cpus.len() == count).then(|| cpus.join(","))
}

#[test]
fn without_packages_it_is_skipped_with_their_names_and_no_failure() {
    let empty = tempfile::tempdir().unwrap();
    let without = |arguments: &[&str]| {
        let mut command = stillpoint(arguments);
        command.env("PATH", empty.path()).env_remove("CARGO").output().expect("the program starts")
    };
    let output = without(&["guest"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    for part in [
        "skipped: no guest can be run here: ",
        "qemu-system-x86_64 is not in PATH",
        "apt-get install",
        "qemu-system-x86",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    let output = without(&["guest", "--json"]);
    let result = json(&output);
    assert!(result["skipped"].as_str().unwrap().contains("qemu-system-x86"), "{result}");
    assert_eq!(result["rows"].as_array().map(Vec::len), Some(0));

    let doctor = stdout(&without(&["doctor"]));
    let line = doctor.lines().find(|line| line.starts_with("no  guest")).expect(&doctor);
    assert!(line.contains("qemu-system-x86"), "{line}");
}

#[test]
fn rows_come_back_with_what_the_host_knows_and_their_ratios() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let parts = Parts::new();
    let console = parts.path("console");
    let output = parts.run("well", &cpus, &["--vcpus", "2,8", "--json", "--console", &console], TCG);
    let result = json(&output);
    let is_over_time = |row: &&Value| row["scenario"] == "over-time";
    let (over_time, rows): (Vec<&Value>, Vec<&Value>) =
        result["rows"].as_array().unwrap().iter().partition(is_over_time);
    let figures: Vec<(&str, u64, &Value)> = rows
        .iter()
        .map(|row| {
            assert_eq!((&row["experiment"], &row["params"]["host_cpus"]), (&"guest".into(), &2.into()));
            assert_eq!((&row["params"]["accel"], &row["params"]["clock"]), (&"tcg".into(), &"tsc".into()));
            let vcpus = row["params"]["vcpus"].as_u64().unwrap();
            (row["scenario"].as_str().unwrap(), vcpus, &row["metrics"])
        })
        .collect();
    assert_eq!(
        figures.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(),
        [[("baseline", 2); 4], [("overcommit", 8); 4]].concat()
    );
    assert_eq!(figures[4].2["gp_mean_to_baseline"], 16);
    assert_eq!(figures[5].2["gp_mean_to_baseline"], 1);
    assert_eq!(figures[4].2["gp_mean_to_symmetric"], 640);
    let [mail, kernel] = [figures[6].2, figures[7].2];
    assert_eq!((&mail["cpu_per_gp_to_baseline"], &mail["peak_pending_to_baseline"]), (&4.into(), &16.into()));
    assert_eq!(kernel["synchronize_rcu_mean_to_baseline"], 4);

    let course: Vec<(&str, f64, &Value)> = over_time
        .iter()
        .map(|row| {
            let params = &row["params"];
            assert_eq!((&params["workload"], &params["accel"]), (&"mail".into(), &"tcg".into()));
            let metrics = row["metrics"].get("delay_us_max").unwrap_or(&Value::Null);
            (params["guest"].as_str().unwrap(), params["second"].as_f64().unwrap(), metrics)
        })
        .collect();
    let [delay, none] = [&Value::from(30.5), &Value::Null];
    let of = |guest| [(guest, 0.01, delay), (guest, 0.02, none)];
    assert_eq!(course, [of("2 on 2"), of("8 on 2")].concat());
    assert_eq!(result["guests"].as_array().map(Vec::len), Some(2));
    let console = fs::read_to_string(console).unwrap();
    assert_eq!(console.matches("booting").count(), 2, "{console}");
}

#[test]
fn tables_have_the_figures_and_the_ratios() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let output = Parts::new().run("well", &cpus, &[], TCG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "baseline: 2 virtual CPUs on 2",
        "each shared with",
        "Ratio to the baseline",
        "16.00x",
        "640.00x",
        "liburcu/mb",
        "Latency of synchronize_rcu",
        "workload mail",
        "4.00x",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn a_second_guest_runs_beside_the_measured_one_and_ends_with_it() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let parts = Parts::new();
    let text = stdout(&parts.run("neighbour", &cpus, &["--neighbour"], TCG));
    for part in ["beside an idle guest", "whose load comes and goes", "neighbour bursts"] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    let output = parts.run("neighbour", &cpus, &["--neighbour", "--json"], TCG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = json(&output);
    let rows = result["rows"].as_array().unwrap();
    let of = |row: &Value| {
        (
            row["scenario"].as_str().unwrap().to_owned(),
            row["params"]["neighbour"].as_str().unwrap().to_owned(),
        )
    };
    let found: Vec<(String, String)> = rows.iter().map(of).collect();
    let expected = [("baseline", "none"), ("baseline", "idle"), ("overcommit", "bursts")];
    assert!(found.iter().map(|(one, other)| (one.as_str(), other.as_str())).eq(expected), "{found:?}");
    assert!(rows.iter().all(|row| row["params"]["vcpus"] == 2));
    assert_eq!(rows[2]["metrics"]["gp_mean_to_baseline"], 1);
}

#[test]
fn guests_share_a_memory_and_one_that_runs_out_of_it_is_a_result() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let parts = Parts::new();
    let path = parts.path("result.json");
    let asked = ["--density", "--contenders", "stillpoint/protected,stillpoint/guard", "--json", &path];
    let output = parts.run("density", &cpus, &asked, TCG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "stillpoint/protected, symmetric: no guest ran out of memory",
        "stillpoint/guard, asymmetric: the first guest ran out of memory with 4",
        "stillpoint/guard, symmetric: the first guest ran out of memory with 3",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    let result: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut rows = result["rows"].as_array().unwrap().iter();
    for guests in 1..=4 {
        for contender in ["stillpoint/protected", "stillpoint/guard"] {
            for (mode, worst, first) in [("asymmetric", 10, 4), ("symmetric", 20, 3)] {
                let row = rows.next().unwrap();
                let params = &row["params"];
                assert_eq!((&row["contender"], &params["mode"]), (&contender.into(), &mode.into()));
                assert_eq!(
                    (&params["guests"], &params["memory_mib"]),
                    (&guests.into(), &(TOTAL / guests).into())
                );
                assert_eq!(row["scenario"], if guests == 1 { "baseline" } else { "overcommit" });
                if contender == "stillpoint/guard" && guests >= first {
                    assert_eq!(row["void"], "out of memory", "{row}");
                } else {
                    assert_eq!(row["metrics"]["gp_us_mean"], guests * worst, "{row}");
                }
            }
        }
    }
    assert_eq!(rows.next(), None);
    assert_eq!(
        parts.run("error", &cpus, &["--density"], TCG).status.code(),
        Some(1),
        "no other failure is a result"
    );
}

#[test]
fn a_guest_with_a_balloon_has_its_modules_or_is_refused() {
    let parts = Parts::new();
    let asked = ["--workloads", "balloon", "--vcpus", "2", "--json"];
    let refused = parts.run("balloon", &cpus(1).unwrap(), &asked, TCG);
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("they come with linux-image-cloud-amd64"), "{message}");

    fs::create_dir_all(parts.path("boot")).unwrap();
    let modules = parts.path("lib/modules/6.1/kernel");
    fs::create_dir_all(&modules).unwrap();
    let kernel = parts.path("boot/vmlinuz-6.1");
    fs::write(&kernel, "kernel").unwrap();
    for name in ["virtio_pci", "virtio_balloon"] {
        fs::write(format!("{modules}/{name}.ko"), "module").unwrap();
    }
    let found = Parts { kernel: "boot/vmlinuz-6.1", ..parts }.run("balloon", &cpus(1).unwrap(), &asked, TCG);
    let contender = "virtio-balloon-pci,deflate-on-oom=on 256 balloon 96";
    assert_eq!(json(&found)["rows"][0]["contender"], contender, "{}", stderr(&found));
}

#[test]
fn a_course_is_drawn_with_a_curve_for_each_guest() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let parts = Parts::new();
    let folder = parts.path("figures");
    let output = parts.run("well", &cpus, &["--vcpus", "2,8", "--figures", &folder], TCG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    for name in ["guest-pending-over-time", "guest-synchronize-rcu", "guest-peak-pending"] {
        assert!(names.iter().any(|file| file.starts_with(name)), "{name} is not in {names:?}");
    }
}

#[test]
fn one_guest_that_fails_fails_the_run_and_keeps_the_rows_of_the_others() {
    let Some(cpus) = cpus(2) else { return skipped("on one CPU there is no baseline") };
    let parts = Parts::new();
    let path = parts.path("result.json");
    let output = parts.run("overcommit-panics", &cpus, &["--vcpus", "2,4", "--json", &path], TCG);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("error: overcommit: 4 virtual CPUs on 2"), "{message}");
    assert!(message.contains("the guest's kernel panicked: No working init found."), "{message}");
    let result: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(result["rows"].as_array().map(Vec::len), Some(1));
}

#[test]
fn whatever_goes_wrong_inside_is_told_outside() {
    let parts = Parts::new();
    for (fake, more, expected) in [
        ("error", "1h", "the program in the guest failed: cannot mount proc"),
        ("truncated", "1h", "breaks off after 1 rows"),
        ("refused", "1h", "no such machine"),
        ("hangs", "500ms", "ended after 500ms without a result"),
    ] {
        let output = parts.run(fake, &cpus(1).unwrap(), &["--vcpus", "2", "--limit", more], TCG);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{fake}: {message}");
        assert!(message.contains(expected), "{fake}: '{expected}' is not in: {message}");
    }
}

/// Without /dev/kvm, emulation is tried first.
#[test]
fn a_processor_that_does_not_start_the_guest_gives_way_to_emulation() {
    let parts = Parts::new();
    let output = parts.run("no-kvm", &cpus(1).unwrap(), &["--vcpus", "2", "--json"], AUTO);
    assert_eq!(json(&output)["rows"][0]["params"]["accel"], "tcg");
    let has_kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    assert_eq!(stderr(&output).contains("KVM does not start the guest"), has_kvm, "{}", stderr(&output));
}

#[test]
fn files_that_do_not_serve_are_refused() {
    let parts = Parts::new();
    let kernel = parts.path("kernel");
    let missing = parts.path("missing");
    let folder = parts.folder.path().to_string_lossy().into_owned();
    for (arguments, expected) in [
        (["guest", "--qemu", missing.as_str()], "cannot read"),
        (["guest", "--kernel", &folder], "is not a file"),
        (["guest", "--init", &kernel], "is not a static program"),
        (["guest", "--vcpus", "1"], "from 2 to 255"),
        (["guest", "--contenders", "dpdk"], "'dpdk'"),
        (["guest", "--limit", "soon"], "'soon'"),
        (["guest", "--workloads", "web"], "'web'"),
    ] {
        let output = stillpoint(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn the_first_process_of_a_guest_does_nothing_elsewhere() {
    let output = stillpoint(&["guest-init"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("does nothing elsewhere"), "{}", stderr(&output));
    let help = stdout(&stillpoint(&["--help"]).output().unwrap());
    assert!(help.contains("  guest ") && !help.contains("guest-init"), "{help}");
}

#[test]
fn ctrl_c_ends_the_guest_and_keeps_what_there_is() {
    let parts = Parts::new();
    let mut child = stillpoint(&["guest", "--accel", "tcg", "--cpus", &cpus(1).unwrap(), "--vcpus", "2"])
        .args(["--qemu", &script(), "--kernel", &parts.path("kernel"), "--init", &parts.path("init")])
        .args(["--json", "--limit", "1h"])
        .env("FAKE", "hangs")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = told_by(&mut child);
    assert!(lines.any(|line| line.starts_with("overcommit: 2 virtual CPUs")), "the guest never began");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let told: Vec<String> = lines.collect();
    let [soon, last] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(soon, "interrupted: ending soon; interrupt again to end at once");
    assert_eq!(last, "error: interrupted before a row was measured: nothing is written");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()));
}

#[test]
fn no_temporary_file_is_left() {
    let parts = Parts::new();
    let temporary = tempfile::tempdir().unwrap();
    let output = stillpoint(&["guest", "--accel", "tcg", "--cpus", &cpus(1).unwrap(), "--vcpus", "2"])
        .args(["--qemu", &script(), "--kernel", &parts.path("kernel"), "--init", &parts.path("init")])
        .env("FAKE", "well")
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}
