//! Imports point down: no circle among the modules at the top of the library, nor of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each module at the top of a crate imports of the others.
type Arrows = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => vec![path],
        _ => Vec::new(),
    };
    entries.flat_map(of).collect()
}

/// The module of a file, as the names on the way to it.
fn module(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod").collect()
}

/// The first names of the paths that begin with `root`; those in braces, too.
fn names_behind<'t>(text: &'t str, root: &str) -> Vec<&'t str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let first = |rest: &'t str| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
    let mut names = Vec::new();
    for (at, _) in text.match_indices(root) {
        // `$crate::`, and `super::` of which this is but the end.
        if text[..at].ends_with([':', '$']) || text[..at].ends_with(is_name) {
            continue;
        }
        let rest = &text[at + root.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(first(rest));
            continue;
        };
        let (mut depth, mut begins) = (1, true);
        for (place, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' => begins = depth == 1,
                c if begins && is_name(c) => {
                    names.push(first(&list[place..]));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn arrows(root: &Path) -> Arrows {
    arrows_within(root, "crate::", &[])
}

/// Of the folders and files below `root`, whose paths begin with `prefix`; but for the names in `exempt`.
fn arrows_within(root: &Path, prefix: &str, exempt: &[&str]) -> Arrows {
    let files: Vec<(Vec<String>, String)> = sources(root)
        .iter()
        .map(|file| (module(file.strip_prefix(root).unwrap()), fs::read_to_string(file).unwrap()))
        .filter(|(module, _)| !matches!(module.first().map(String::as_str), None | Some("lib" | "main")))
        .collect();
    let all: BTreeSet<&String> = files.iter().map(|(module, _)| &module[0]).collect();
    let mut arrows: Arrows = all.iter().map(|&name| (name.clone(), BTreeSet::new())).collect();
    for (module, text) in &files {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let lines = lines.filter(|line| !exempt.iter().any(|name| line.contains(name)));
        let code = lines.collect::<Vec<_>>().join("\n");
        // From a file, and from a module within it.
        let roots = [prefix.to_owned(), "super::".repeat(module.len())];
        let names = roots.iter().flat_map(|root| names_behind(&code, root));
        let others = names.filter(|name| all.contains(&(*name).to_owned()) && *name != module[0]);
        arrows.get_mut(&module[0]).unwrap().extend(others.map(str::to_owned));
    }
    arrows
}

/// Takes away, over and over, what imports nothing that is left. What cannot be taken away is in a circle, or above one.
fn circle(mut arrows: Arrows) -> Arrows {
    loop {
        let bottom: BTreeSet<String> =
            arrows.iter().filter(|(_, imports)| imports.is_empty()).map(|(name, _)| name.clone()).collect();
        if bottom.is_empty() {
            return arrows;
        }
        arrows.retain(|name, _| !bottom.contains(name));
        arrows.values_mut().for_each(|imports| imports.retain(|name| !bottom.contains(name)));
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_library_has_no_circle() {
    let arrows = arrows(&crates().join("stillpoint/src"));
    assert!(arrows["table"].contains("rcu") && arrows["rcu"].contains("fence"), "{arrows:?}");
    assert!(
        arrows["timer"].is_disjoint(&["rcu", "fence", "table", "pool"].map(str::to_owned).into()),
        "{arrows:?}"
    );
    assert_eq!(circle(arrows), Arrows::new());
}

/// Whoever has read its core has seen all that correctness needs.
#[test]
fn the_core_of_rcu_imports_nothing_beside_it() {
    // The protocol keeps one for each record, and does nothing with it.
    let exempt = ["use crate::rcu::engine::boost::BoostState;"];
    let engine = crates().join("stillpoint/src/rcu/engine");
    let arrows = arrows_within(&engine, "crate::rcu::engine::", &exempt);
    assert!(arrows["core"].is_empty(), "{arrows:?}");
    let below = |folder: &str, names: &[&str]| {
        let above: Vec<_> = arrows[folder].iter().filter(|name| !names.contains(&name.as_str())).collect();
        assert!(above.is_empty(), "{folder} imports {above:?}");
    };
    below("boost", &["core"]);
    below("wait", &["core", "boost"]);
    below("queue", &["core", "boost", "wait"]);
}

#[test]
fn the_program_has_no_circle() {
    let arrows = arrows(&crates().join("stillpoint-lab/src"));
    assert!(arrows["cli"].contains("experiment"), "{arrows:?}");
    let above: Vec<&String> =
        arrows.iter().filter(|(_, all)| all.contains("cli")).map(|(name, _)| name).collect();
    assert!(above.is_empty(), "below the command line, and imports it: {above:?}");
    assert_eq!(circle(arrows), Arrows::new());
}

#[test]
fn imports_are_found_however_they_are_written() {
    let text =
        "use crate::a::x; use crate::{b::{y, z}, c, d as e}; crate::f::g(); $crate::no; super::super::h;";
    assert_eq!(names_behind(text, "crate::"), ["a", "b", "c", "d", "f"]);
    assert_eq!(names_behind(text, "super::super::"), ["h"]);
    assert_eq!(names_behind(text, "super::"), ["super"]);
    let arrow = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
    let found =
        circle([arrow("a", &["b"]), arrow("b", &["c", "d"]), arrow("c", &["b"]), arrow("d", &[])].into());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
}
