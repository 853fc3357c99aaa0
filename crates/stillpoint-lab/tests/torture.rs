//! `stillpoint torture`: clean where the library is whole, and caught where it is broken on purpose.
//!
//! The broken variants exist only in builds with `RUSTFLAGS="--cfg stillpoint_busted"`.

use std::process::{Command, Output};

fn torture(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .arg("torture")
        .args(arguments)
        .env_remove("STILLPOINT_BUSTED")
        .output()
        .expect("the program starts")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// The names of the variants, and the checkers that catch each.
fn variants() -> Vec<(String, String)> {
    let list = torture(&["--list-busted"]);
    assert_eq!(list.status.code(), Some(0), "{}", text(&list));
    let list = String::from_utf8(list.stdout).unwrap();
    let variant = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        let (checkers, sentence) = rest.trim().split_once("  ").unwrap();
        let checkers = checkers.trim();
        assert!(sentence.trim().ends_with('.'), "{line}");
        (name.to_owned(), checkers.to_owned())
    };
    let (variants, _legend) = list.split_once("\n\n").expect("the checkers are explained");
    variants.lines().map(variant).collect()
}

#[test]
fn every_broken_variant_is_listed_with_its_checkers() {
    let variants = variants();
    assert!(
        variants.iter().all(|(_, checkers)| {
            ["only loom", "torture, loom", "torture, mix, loom"].contains(&checkers.as_str())
        }),
        "{variants:?}"
    );
    for (name, checkers) in [
        ("rcu:no-heavy", "torture, loom"),
        ("table:no-light", "torture, loom"),
        ("rcu:ignore-hazards", "torture, mix, loom"),
        ("rcu:scan-relaxed", "only loom"),
        ("table:reload-relaxed", "only loom"),
    ] {
        assert!(variants.contains(&(name.to_owned(), checkers.to_owned())), "{name}");
    }
}

/// What torture cannot catch says why.
#[test]
fn variants_for_loom_alone_are_listed_with_the_reason() {
    let list = text(&torture(&["--list-busted"]));
    for line in list.lines().take_while(|line| !line.is_empty()) {
        assert_eq!(line.contains(" torture, "), !line.contains(" Not by torture: "), "{line}");
    }
}

#[test]
fn a_variant_that_only_models_catch_is_refused_with_the_reason() {
    let output = torture(&["--busted", "rcu:leave-relaxed"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("x86-64 reorders") && text.contains("Only the models under loom"), "{text}");
}

#[test]
fn bad_requests_are_refused_in_one_line() {
    for arguments in [
        &["--busted", "nothing"][..],
        &["--busted", "rcu:leave-relaxed"],
        &["--seconds", "0"],
        &["--threads", "1"],
        &["--seed", "x"],
    ] {
        let output = torture(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(output.stdout.is_empty());
        assert_eq!(text(&output).trim_end().lines().count(), 1, "{}", text(&output));
    }
}

#[cfg(not(stillpoint_busted))]
mod whole {
    use super::*;

    #[test]
    fn a_short_run_is_clean() {
        let output = torture(&["--seconds", "4", "--seed", "7"]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        for said in [
            "Clean: ",
            "seed 7",
            "The hog is ",
            "Mixed part",
            "Floods",
            "Races",
            "Tables",
            "Forks",
            "Readers parked",
        ] {
            assert!(text.contains(said), "without '{said}': {text}");
        }
    }

    #[test]
    fn without_the_variants_it_says_how_to_build_them() {
        let output = torture(&["--busted", "rcu:no-heavy"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let text = text(&output);
        assert!(
            text.contains("RUSTFLAGS='--cfg stillpoint_busted'") && text.contains("--busted rcu:no-heavy"),
            "{text}"
        );
    }
}

#[cfg(stillpoint_busted)]
mod busted {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::time::Instant;

    /// The signal that ends a process that uses freed memory, as some variants do. The process may die before torture has reported
    /// what it found.
    const SIGSEGV: i32 = 11;

    /// One after the other: the races want the CPUs for themselves. Most are caught within a second; `boost-no-second-restore` takes
    /// minutes at times, and beside other programs a few more do. A run ends when it has caught its variant.
    #[test]
    fn every_variant_that_torture_is_said_to_catch_is_caught() {
        let mut missed = Vec::new();
        for (name, _) in variants().iter().filter(|(_, checkers)| checkers.contains("torture")) {
            let begun = Instant::now();
            let output = torture(&["--seconds", "600", "--busted", name]);
            let text = text(&output);
            println!("{name}: {:.1?}", begun.elapsed());
            // What it found is in stdout. In stderr, a thread that panicked says so, which is a finding as well.
            let caught = String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .ends_with(&format!("Torture caught the broken variant {name}, as it should."))
                && output.status.code() == Some(1);
            if !caught && output.status.signal() != Some(SIGSEGV) {
                missed.push(format!("{name}, {:?}:\n{text}", output.status));
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }

    #[test]
    fn an_environment_that_names_no_variant_is_refused_in_one_line() {
        for (variable, variant, command) in [
            ("STILLPOINT_BUSTED", "rcu:ignore-hazard", "torture"),
            ("STILLPOINT_BUSTED", "no-reload", "doctor"),
            ("STILLPOINT_BUSTED", "pool:first-that-comes", "torture"),
            ("STILLPOINT_BUSTED_TABLE", "no-reload", "doctor"),
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
                .arg(command)
                .env(variable, variant)
                .output()
                .expect("the program starts");
            let text = text(&output);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(text.starts_with(&format!("error: {variable}: ")), "{text}");
            assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_run_without_a_variant_is_clean() {
        let output = torture(&["--seconds", "4"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}
