//! Crates from the registry run on the stand-in, unchanged: `compat/dependants`.

#![cfg(not(miri))]

#[path = "../../stillpoint/tests/support/skip.rs"]
mod skip;

use std::path::Path;
use std::process::{Command, Output};

/// Runs cargo in one of the workspaces of `compat`, which are built separately.
fn cargo(workspace: &str, flags: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat").join(workspace))
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join(workspace))
        // Broken variants and models do not concern these programs.
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo can be run: it has built this test")
}

/// Whether the dependencies of a workspace can be fetched. If the registry cannot be reached, reports that the test is
/// skipped.
fn is_fetched(workspace: &str) -> bool {
    let fetched = cargo(workspace, "", &["fetch"]);
    if !fetched.status.success() {
        let error = String::from_utf8_lossy(&fetched.stderr);
        // A version that was never published, or a wrong manifest, fails the test.
        let is_away = ["failed to download", "Could not resolve", "spurious network", "offline"]
            .iter()
            .any(|words| error.contains(words));
        assert!(is_away, "the dependencies of {workspace} cannot be fetched:\n{error}");
        skip::skipped(&format!(
            "the registry is away: {}",
            error.lines().find(|line| line.starts_with("error")).unwrap_or_default()
        ));
    }
    fetched.status.success()
}

/// Models get one message, before any error of a dependency.
#[test]
fn models_are_told_that_they_need_the_original() {
    const WORKSPACE: &str = "crossbeam-epoch";
    if !is_fetched(WORKSPACE) {
        return;
    }
    let built =
        cargo(WORKSPACE, "--cfg crossbeam_loom", &["check", "--quiet", "--offline", "--features", "loom"]);
    let error = String::from_utf8_lossy(&built.stderr);
    let errors: Vec<&str> = error.lines().filter(|line| line.starts_with("error")).collect();
    assert!(
        !built.status.success() && errors.len() == 2,
        "the build must fail with only two errors, the message and its own end:\n{error}"
    );
    assert!(
        errors[0].contains("take the [patch] entry out") && errors[1].contains("could not compile"),
        "{error}"
    );
}

#[test]
fn crates_from_the_registry_run_on_the_stand_in() {
    const WORKSPACE: &str = "dependants";
    if !is_fetched(WORKSPACE) {
        return;
    }
    let ran = cargo(WORKSPACE, "", &["run", "--quiet", "--offline"]);
    let (output, error) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{output}\n{error}");
    let lines: Vec<(&str, u64)> = output
        .lines()
        .map(|line| {
            line.split_once(' ').and_then(|(name, freed)| Some((name, freed.parse().ok()?))).expect(line)
        })
        .collect();
    let names: Vec<&str> = lines.iter().map(|&(name, _)| name).collect();
    let expected =
        ["crossbeam-deque", "crossbeam-skiplist", "rayon", "moka", "congee", "lockfree-cuckoohash"];
    assert_eq!(names, expected);
    // The programs have run on the stand-in, and the functions that they deferred have run.
    for (name, freed) in lines {
        assert!(freed > 0 || name == "rayon", "{name} has deferred nothing: {output}");
    }
}
