//! `stillpoint module` with a script in the place of QEMU and a recipe in the place of the kernel's, and without
//! QEMU. Other checks load the module into a real kernel.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::{json, stderr, stdout, stillpoint};
use crate::skip::skipped;

/// A Makefile that builds files of the right names.
const RECIPE: &str = "module:\n\t@test -d $(KDIR) && echo module > stillpoint_membarrier.ko\n\
                      user:\n\t@mkdir -p build && touch build/check build/libstillpoint_membarrier.so\n\
                      build/urcu:\n\t@echo no liburcu >&2; exit 1\n";

/// The files that the test takes, none of them real.
struct Parts(TempDir);

impl Parts {
    /// `None` if there are no tools to build with.
    fn new() -> Option<Self> {
        let there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
        if !there("make") || !there("gcc") {
            skipped("make or gcc is not in PATH");
            return None;
        }
        let parts = Self(tempfile::tempdir().unwrap());
        for folder in ["sources", "headers"] {
            fs::create_dir(parts.0.path().join(folder)).unwrap();
        }
        for (file, contents) in [
            ("sources/Kbuild", ""),
            ("sources/Makefile", RECIPE),
            ("headers/Makefile", ""),
            ("image", "image"),
        ] {
            fs::write(parts.0.path().join(file), contents).unwrap();
        }
        Some(parts)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn run(&self, fake: &str, more: &[&str]) -> Output {
        let qemu = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/fake_module_qemu.sh");
        let (sources, headers, image) = (self.path("sources"), self.path("headers"), self.path("image"));
        let qemu = qemu.to_string_lossy();
        let parts =
            ["module", "--sources", &sources, "--headers", &headers, "--kernel", &image, "--qemu", &qemu];
        let arguments: Vec<&str> = parts.iter().chain(more).copied().collect();
        // The test of the library would take minutes to build.
        stillpoint(&arguments)
            .envs([("FAKE", fake), ("CARGO", "/nowhere")])
            .output()
            .expect("the program starts")
    }
}

#[test]
fn without_packages_it_is_skipped_with_their_names_and_no_failure() {
    let empty = tempfile::tempdir().unwrap();
    let without = |arguments: &[&str]| {
        stillpoint(arguments).env("PATH", empty.path()).output().expect("the program starts")
    };
    let output = without(&["module"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    for part in [
        "skipped: the module cannot be tested here: ",
        "qemu-system-x86_64 is not in PATH",
        "make is not in PATH",
        "apt-get install",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    let result = json(&without(&["module", "--json"]));
    assert!(result["skipped"].as_str().unwrap().contains("qemu-system-x86"), "{result}");
}

#[test]
fn each_machine_reports_what_it_checked() {
    let Some(parts) = Parts::new() else { return };
    let output = parts.run("well", &["--vcpus", "4,8", "--seconds", "0.5", "--entries", "7", "--json"]);
    let result = json(&output);
    let machines = result["machines"].as_array().unwrap();
    assert_eq!(machines.iter().map(|m| m["vcpus"].as_u64().unwrap()).collect::<Vec<_>>(), [4, 8]);
    let checks = machines[0]["checks"].as_array().unwrap();
    assert_eq!((&checks[0]["outcome"], &checks[0]["detail"]), (&"pass".into(), &"with 0.5 7".into()));
    assert_eq!(checks[1]["outcome"], "skip");
    let rates = machines[0]["rates"].as_array().unwrap();
    assert_eq!(rates.iter().map(|r| r["ratio"].as_f64()).collect::<Vec<_>>(), [Some(1.0), Some(0.75), None]);
    assert!(rates[2]["void"].as_str().is_some_and(|void| void.contains("did not reach")), "{rates:?}");
    for part in ["no liburcu", "the test of the library is left out"] {
        assert!(stderr(&output).contains(part), "'{part}' is not in: {}", stderr(&output));
    }
    let left_out =
        stderr(&output).lines().filter(|line| *line == "skipped: liburcu: it was not built").count();
    assert_eq!(left_out, 2, "one line for each machine: {}", stderr(&output));
    let text = stdout(&parts.run("well", &["--vcpus", "4"]));
    assert!(text.contains("4 virtual CPUs: 1 passed, 0 failed, 1 skipped"), "{text}");
    for part in ["tree: 10 grace periods a second, 10 reached: 0.75 times", "250 reached: void: "] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn a_failed_check_fails_the_command_and_is_shown() {
    let Some(parts) = Parts::new() else { return };
    let output = parts.run("violation", &["--vcpus", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("FAIL litmus: tree: 3 violations"), "{}", stdout(&output));
    assert!(stderr(&output).contains("4 virtual CPUs: 1 checks failed"), "{}", stderr(&output));
}

#[test]
fn a_machine_that_breaks_off_or_hangs_is_a_failure_with_its_last_words() {
    let Some(parts) = Parts::new() else { return };
    let output = parts.run("breaks-off", &["--vcpus", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("breaks off after 1 lines"), "{}", stderr(&output));
    assert!(stderr(&output).contains("Fatal exception in interrupt"), "{}", stderr(&output));
    let output = parts.run("hangs", &["--vcpus", "4", "--limit", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output)
            .contains("ended after 1s without a result, --limit allows more: the tests' output breaks off"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_does_not_serve_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let refused = |arguments: &[&str], part: &str| {
        let output = stillpoint(arguments).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(part), "'{part}' is not in: {}", stderr(&output));
    };
    refused(&["module", "--sources", &path], "it has no Kbuild");
    refused(&["module", "--release", "9.9-none"], "9.9-none are not both installed");
    refused(&["module", "--kernel", "/nonexistent", "--headers", &path], "/nonexistent");
    refused(&["module", "--kernel", "/dev/null"], "--headers");
    refused(&["module", "--seconds", "never"], "0.01 to 600");
}

#[test]
fn the_library_is_refused_the_module_where_it_is_not_loaded() {
    if Path::new("/dev/stillpoint_membarrier").exists() {
        return skipped("the module is loaded");
    }
    let output = stillpoint(&["module-inside", "0.1"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not loaded"), "{}", stderr(&output));
}
