//! `doctor`, completions, manual pages and help.

use crate::common::{json, run, stderr, stdout};

#[test]
fn doctor_names_what_is_here_and_what_absences_cost() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for topic in [
        "cores",
        "tsc",
        "membarrier",
        "fences",
        "scheduling",
        "huge pages",
        "numa",
        "frame numbers",
        "guest",
        "quiet CPUs",
        "seize",
    ] {
        assert!(text.contains(topic), "'{topic}' is not in:\n{text}");
    }
    for line in text.lines().filter(|line| line.starts_with("no ")) {
        let next = text.lines().skip_while(|other| *other != line).nth(1).unwrap_or_default();
        assert!(next.trim_start().starts_with("cost: "), "a missing feature without its cost: {line}");
        let after = text.lines().skip_while(|other| *other != line).nth(2).unwrap_or_default();
        assert!(after.trim_start().starts_with("do: "), "a missing feature without a remedy: {line}");
    }
    let headings: Vec<&str> = text.split("\n\n").skip(1).filter_map(|group| group.lines().next()).collect();
    assert_eq!(headings[..4], ["Machine", "Kernel", "Peers to compare with", "Tools"], "{text}");
    let peers = text.lines().filter(|line| line.starts_with("yes peer"));
    assert_eq!(peers.count(), 1, "those that are there share a line: {text}");
    for missing in stillpoint_peers::missing() {
        assert!(text.contains(missing.package), "{} is not in:\n{text}", missing.package);
    }
}

#[test]
fn doctor_speaks_json() {
    let result = json(&run(&["doctor", "--json"]));
    assert_eq!(result["schema"], 1);
    assert_eq!(result["command"], "stillpoint doctor --json");
    assert_eq!(result["rows"].as_array().unwrap().len(), 0);
    assert!(result["machine"]["cpus_allowed"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    assert!(["asymmetric", "symmetric"].contains(&result["machine"]["fence"].as_str().unwrap()));
    let findings = result["findings"].as_array().unwrap();
    assert!(
        findings.iter().all(|finding| finding["present"] == true
            || finding["cost"].is_string() && finding["remedy"].is_string())
    );
    assert!(findings.iter().any(|finding| finding["topic"] == "membarrier"));
}

#[test]
fn completions_exist_for_the_common_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.contains("stillpoint") && text.contains("contenders"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", &folder.path().to_string_lossy()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for page in ["stillpoint.1", "stillpoint-bench.1", "stillpoint-bench-pool.1", "stillpoint-doctor.1"] {
        let text = std::fs::read_to_string(folder.path().join(page))
            .unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH"), "{page}");
    }
}

#[test]
fn help_goes_to_standard_output_and_is_no_error() {
    for (command, part) in
        [(&["bench", "--help"][..], "membarrier"), (&["bench", "micro", "--help"], "--contenders")]
    {
        let output = run(command);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains(part), "{part}");
    }
    assert_eq!(run(&[]).status.code(), Some(2), "no command at all is a wrong usage");
}
