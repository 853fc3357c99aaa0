//! Public types and parameters and the rows about them are complete: none is added without the others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::rows::{DropCheck, Variance};
use super::{generic, plain};

/// Public in a private module, so not available outside.
pub(crate) const PRIVATE: &[&str] = &["rcu::Core"];

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The `.rs` files below `folder`.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in folder.read_dir().expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The names in `<'a, T: Bounds = Default>`, if `rest` begins with a list.
fn parameters(rest: &str) -> Vec<String> {
    let (mut names, mut name, mut depth) = (Vec::new(), String::new(), 0);
    for character in rest.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 1 => names.push(std::mem::take(&mut name)),
            _ if depth == 1 => name.push(character),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names.push(name);
    let name = |text: &String| text.split([':', '=']).next().unwrap_or_default().trim().to_owned();
    names.iter().map(name).filter(|name| !name.is_empty()).collect()
}

/// The sources that need a feature which this program does not have.
fn without() -> Vec<&'static str> {
    let of_features =
        [(cfg!(feature = "delay-queue"), "timer/delay_queue"), (cfg!(feature = "metrics"), "metrics.rs")];
    of_features.into_iter().filter(|&(is_there, _)| !is_there).map(|(_, source)| source).collect()
}

/// The public types of the library and of the crates `multicast` and `structures`, with their parameters, as the
/// sources declare them, or re-export them, but for the files and folders `left_out`.
fn declared(left_out: &[&str]) -> BTreeSet<(String, Option<String>)> {
    let mut declared = BTreeSet::new();
    let sources = folder("src");
    let others = ["multicast", "structures"].map(|name| (name, folder(&format!("../stillpoint-{name}/src"))));
    let of_others = others.iter().flat_map(|(_, folder)| files(folder));
    for file in files(&sources).into_iter().chain(of_others) {
        let module = match file.strip_prefix(&sources) {
            Ok(file) if left_out.iter().any(|folder| file.starts_with(folder)) => continue,
            // Its nodes are part of the engine.
            Ok(file) if file.starts_with("rcu/raw") || file.ends_with("callbacks/node.rs") => "raw".into(),
            Ok(file) => file.iter().next().expect("it has a name").to_string_lossy(),
            Err(_) => {
                let other = others.iter().find(|(_, folder)| file.starts_with(folder));
                other.expect("it is in one of the folders").0.into()
            }
        };
        let text = fs::read_to_string(&file).expect("it can be read");
        for keyword in ["\npub struct ", "\npub enum ", "\npub union ", "\npub use stillpoint_sys::os::"] {
            for rest in text.split(keyword).skip(1) {
                let end = rest.find(['<', '(', '{', ';', ' ']).expect("a declaration goes on");
                let name = format!("{module}::{}", &rest[..end]);
                if PRIVATE.contains(&&*name) {
                    continue;
                }
                let parameters = parameters(&rest[end..]);
                if parameters.is_empty() {
                    declared.insert((name.clone(), None));
                }
                declared.extend(parameters.into_iter().map(|parameter| (name.clone(), Some(parameter))));
            }
        }
    }
    declared
}

#[test]
fn each_public_type_and_parameter_has_a_row() {
    let rows: BTreeSet<_> = generic::table()
        .iter()
        .map(|row| (row.name.to_owned(), Some(row.parameter.to_owned())))
        .chain(plain::table().iter().map(|(name, ..)| ((*name).to_owned(), None)))
        .collect();
    let declared = declared(&without());
    let without: Vec<_> = declared.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&declared).collect();
    assert!(declared.len() > 100, "the sources are not read as they are written: {declared:?}");
    assert!(without.is_empty(), "without a row in tests/promises: {without:#?}");
    assert!(unknown.is_empty(), "rows for types that the library does not have: {unknown:#?}");
}

/// Public traits and aliases.
const OTHERS: &[&str] = &["Linkable", "Pointee", "Region", "Replaced", "Scope"];

/// The nouns of a section of the glossary.
fn nouns(glossary: &str, section: &str) -> BTreeSet<String> {
    let (_, text) = glossary.split_once(&format!("\n## {section}\n")).expect("the glossary has the section");
    let rows = text.split("\n## ").next().expect("there is a first one").lines();
    let first_cells = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Each type has one sentence in the glossary. The limit on the nouns of `rcu` keeps it small enough to learn.
#[test]
fn each_public_type_is_in_the_glossary() {
    let glossary = fs::read_to_string(folder("../../docs/design/glossary.md")).expect("it is there");
    let mut declared: BTreeSet<(String, String)> = BTreeSet::new();
    for (name, _) in self::declared(&[]) {
        let (module, name) = name.split_once("::").expect("a type is in a module");
        declared.insert((module.to_owned(), name.to_owned()));
    }
    for section in ["fence", "rcu", "raw", "table", "timer", "pool", "multicast", "structures"] {
        let nouns = nouns(&glossary, section);
        let public = declared.iter().filter(|(module, _)| module == section);
        let public: BTreeSet<String> = public.map(|(_, name)| name.clone()).collect();
        let without: Vec<_> = public.difference(&nouns).collect();
        let unknown: Vec<_> = nouns.difference(&public).filter(|noun| !OTHERS.contains(&&***noun)).collect();
        assert!(without.is_empty(), "{section} without a row in docs/design/glossary.md: {without:?}");
        assert!(unknown.is_empty(), "{section} has none of these: {unknown:?}");
    }
    let all = ["rcu", "rcu, the core of the engine", "rcu, around the core"]
        .map(|part| nouns(&glossary, part).len());
    assert!(all.iter().sum::<usize>() <= 70, "{all:?} nouns are too many to learn");
}

/// The functions in which the compiler finds an error, in those programs in `compile_fail` whose names begin like this.
fn refused(beginning: &str) -> BTreeSet<String> {
    let mut refused = BTreeSet::new();
    for program in files(&folder("../stillpoint-structures/tests/compile_fail")) {
        let name = program.file_name().expect("it has a name").to_string_lossy().into_owned();
        if !name.starts_with(beginning) {
            continue;
        }
        let text = fs::read_to_string(&program).expect("it can be read");
        let errors =
            fs::read_to_string(program.with_extension("stderr")).expect("each program has its errors");
        let place = format!("{name}:");
        for line in errors.lines().filter(|line| line.trim_start().starts_with("--> ")) {
            let (_, at) = line.split_once(&place).expect("the error is in the program");
            let at: usize = at.split(':').next().and_then(|at| at.parse().ok()).expect("a line has a number");
            let function = text.lines().take(at).filter_map(|line| line.strip_prefix("fn ")).last();
            let function = function.expect("the error is in a function");
            refused.insert(function[..function.find(['(', '<']).expect("it has parameters")].to_owned());
        }
    }
    refused
}

/// Programs that do not compile show that an invariant parameter cannot be replaced, and what must be alive at the end.
/// They have one function for each row, and the compiler refuses each one separately.
#[test]
fn what_must_not_compile_is_tried_for_each_row() {
    let (shortened, lengthened) = (refused("shorten_"), refused("lengthen_"));
    let dropped = refused("dropped_after_borrow");
    for row in generic::table() {
        let function = row.function();
        if row.variance == Variance::Invariant {
            assert!(shortened.contains(&function), "compile_fail/shorten_*.rs is without {function}");
            assert!(lengthened.contains(&function), "compile_fail/lengthen_*.rs is without {function}");
        }
        if row.drop_check == DropCheck::Alive {
            assert!(
                dropped.contains(&function),
                "compile_fail/dropped_after_borrow.rs is without {function}"
            );
        }
    }
}
