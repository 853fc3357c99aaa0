//! Crates from the registry run on the stand-in, unchanged: `compat/dependants`.

#![cfg(not(miri))]

#[path = "../../stillpoint/tests/support/skip.rs"]
mod skip;

use std::path::Path;
use std::process::{Command, Output};

/// Cargo in the workspace of the programs, which is built apart.
fn cargo(arguments: &[&str]) -> Output {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/dependants");
    Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("dependants"))
        // They are not the subject of broken variants and models.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo is there: it has built this")
}

#[test]
fn crates_from_the_registry_run_on_the_stand_in() {
    let fetched = cargo(&["fetch"]);
    if !fetched.status.success() {
        let error = String::from_utf8_lossy(&fetched.stderr);
        // Versions that nobody has published, and manifests that are wrong, are no reason.
        let is_away =
            ["failed to download", "failed to get", "Could not resolve", "spurious network", "offline"]
                .iter()
                .any(|words| error.contains(words));
        assert!(is_away, "{error}");
        return skip::skipped(&format!(
            "the registry is away: {}",
            error.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim()
        ));
    }
    let ran = cargo(&["run", "--quiet", "--offline"]);
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
    // They have run on the stand-in, and what they have deferred has run.
    for (name, freed) in lines {
        assert!(freed > 0 || name == "rayon", "{name} has deferred nothing: {output}");
    }
}
