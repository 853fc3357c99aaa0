//! Imports point down: from crate to crate as on the map of CONTRIBUTING.md, without a circle among the top modules of each crate, and
//! in the crates that users build on without a circle among files.

#[path = "arrows/files.rs"]
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::{Files, Imports, circles};

/// For each top module of a crate, the other modules that it imports; or the same for crates.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Each crate, and those that it imports.
const CRATES: [(&str, &[&str]); 11] = [
    ("stillpoint-sys", &[]),
    ("stillpoint", &["stillpoint-sys"]),
    ("stillpoint-structures", &["stillpoint-sys", "stillpoint"]),
    ("stillpoint-epoch", &["stillpoint-sys", "stillpoint"]),
    ("stillpoint-c", &["stillpoint", "stillpoint-sys"]),
    ("stillpoint-multicast", &["stillpoint-sys"]),
    ("stillpoint-peers", &["stillpoint-c"]),
    ("stillpoint-harness", &["stillpoint"]),
    ("stillpoint-torture", &["stillpoint", "stillpoint-harness"]),
    ("stillpoint-multicast-lab", &["stillpoint", "stillpoint-multicast", "stillpoint-harness"]),
    (
        "stillpoint-lab",
        &[
            "stillpoint",
            "stillpoint-multicast",
            "stillpoint-structures",
            "stillpoint-peers",
            "stillpoint-harness",
            "stillpoint-torture",
            "stillpoint-multicast-lab",
        ],
    ),
];

/// The crates that users build on.
const FOR_USERS: [&str; 6] = [
    "stillpoint",
    "stillpoint-sys",
    "stillpoint-structures",
    "stillpoint-multicast",
    "stillpoint-epoch",
    "stillpoint-c",
];

/// In the crates that users build on, the circles of files that may be.
const CIRCLES: usize = 3;

/// What begins the comment that names a circle, in the `mod.rs` or `lib.rs` of the folder that has its files.
const NAMES: &str = "// A circle of files: ";

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => vec![path],
        _ => Vec::new(),
    };
    entries.flat_map(of).collect()
}

/// The path of a file's module, as names.
fn module(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod").collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text of a file without its comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The crates of this workspace with which paths begin, by the names of their folders.
fn crates_in(text: &str) -> BTreeSet<String> {
    let of = |(at, _): (usize, &str)| {
        let (before, rest) = text.split_at(at);
        let (name, behind) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let imported = behind.starts_with("::") || before.ends_with("use ");
        (imported && !before.ends_with(is_name)).then(|| name.replace('_', "-"))
    };
    text.match_indices("stillpoint").filter_map(of).collect()
}

/// The first names after `root` in paths, including names in braces.
fn names_behind<'t>(text: &'t str, root: &str) -> Vec<&'t str> {
    let first = |rest: &'t str| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
    let mut names = Vec::new();
    for (at, _) in text.match_indices(root) {
        // Skips `$crate::`, and the end of a longer `super::super::`.
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

/// The imports of the folders and files below `root`, whose paths begin with `prefix`. Imports in `exempt` do not
/// count.
fn arrows_within(root: &Path, prefix: &str, exempt: &[&str]) -> Arrows {
    let files: Vec<(Vec<String>, String)> = sources(root)
        .iter()
        .map(|file| (module(file.strip_prefix(root).unwrap()), code(file)))
        .filter(|(module, _)| !matches!(module.first().map(String::as_str), None | Some("lib" | "main")))
        .collect();
    let all: BTreeSet<&String> = files.iter().map(|(module, _)| &module[0]).collect();
    let mut arrows: Arrows = all.iter().map(|&name| (name.clone(), BTreeSet::new())).collect();
    for (module, code) in &files {
        let lines = code.lines().filter(|line| !exempt.iter().any(|name| line.contains(name)));
        let code = lines.collect::<Vec<_>>().join("\n");
        // The prefixes of paths in a file, and in a module within it.
        let roots = [prefix.to_owned(), "super::".repeat(module.len())];
        let names = roots.iter().flat_map(|root| names_behind(&code, root));
        let others = names.filter(|name| all.contains(&(*name).to_owned()) && *name != module[0]);
        arrows.get_mut(&module[0]).unwrap().extend(others.map(str::to_owned));
    }
    arrows
}

/// Repeatedly removes the modules that import no module that is left. The modules that remain are in a circle, or
/// above one.
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

/// So the core can be read by itself: it has everything that correctness needs.
#[test]
fn the_core_of_rcu_imports_nothing_beside_it() {
    let imports = Files::of(&crates().join("stillpoint/src")).all_imports();
    let engine = Path::new("rcu/engine");
    let below = [
        ("core", &[][..]),
        ("boost", &["core"]),
        ("wait", &["core", "boost"]),
        ("queue", &["core", "boost", "wait"]),
    ];
    let mut beside = String::new();
    for (folder, below) in below {
        let folder = engine.join(folder);
        let may =
            |to: &Path| to.starts_with(&folder) || below.iter().any(|name| to.starts_with(engine.join(name)));
        // What `mod.rs` defines holds all the parts together.
        let is_above = |to: &Path| to.starts_with(engine) && to != engine.join("mod.rs") && !may(to);
        let all = lines(&imports, |from| from.starts_with(&folder), is_above);
        // The protocol stores a `BoostState` in each record, and does nothing else with it.
        beside
            .extend(all.lines().filter(|line| !line.contains("uses crate::rcu::engine::boost::BoostState,")));
    }
    assert!(beside.is_empty(), "a folder of the engine imports what is not below it: {beside}");
    assert!(
        lines(
            &imports,
            |from| from.starts_with(engine.join("queue")),
            |to| to.starts_with(engine.join("core"))
        )
        .lines()
        .count()
            > 9
    );
}

/// So the engine can be read without what users see of it.
#[test]
fn the_engine_of_rcu_imports_nothing_above_it() {
    let imports = Files::of(&crates().join("stillpoint/src")).all_imports();
    let engine = Path::new("rcu/engine");
    let is_above =
        |to: &Path| to.starts_with("rcu") && !to.starts_with(engine) && to != Path::new("rcu/orders.rs");
    let above = lines(&imports, |from| from.starts_with(engine), is_above);
    assert!(
        above.is_empty(),
        "the engine imports what lies above it:\n{above}Move the type, or the part that the engine needs, below `engine/`, and re-export it \
         at its public path."
    );
    assert!(
        !lines(&imports, |from| from.starts_with(engine), |to| to == Path::new("rcu/orders.rs")).is_empty()
    );
}

#[test]
fn the_program_has_no_circle() {
    let arrows = arrows(&crates().join("stillpoint-lab/src"));
    assert!(arrows["cli"].contains("bench"), "{arrows:?}");
    let above: Vec<&String> =
        arrows.iter().filter(|(_, all)| all.contains("cli")).map(|(name, _)| name).collect();
    assert!(above.is_empty(), "modules below the command line import it: {above:?}");
    assert_eq!(circle(arrows), Arrows::new());
}

#[test]
fn what_the_program_stands_on_has_no_circle() {
    let of = |name: &str| arrows(&crates().join(name).join("src"));
    let harness = of("stillpoint-harness");
    assert!(harness["experiment"].contains("output") && harness["qemu"].contains("error"), "{harness:?}");
    assert_eq!(circle(harness), Arrows::new());
    let torture = of("stillpoint-torture");
    assert!(torture["plan"].contains("table") && torture["table"].contains("arena"), "{torture:?}");
    assert_eq!(circle(torture), Arrows::new());
    let multicast = of("stillpoint-multicast-lab");
    let others = |room: &str| multicast[room].iter().any(|other| other != "device");
    assert!(!others("simulate") && !others("module") && multicast["device"].is_empty(), "{multicast:?}");
}

/// The circles that the files of a crate name. The comment goes on to the end of its lines, and names the files in backticks, relative to
/// its folder, without their extensions.
fn named_circles(sources_of: &Path) -> BTreeSet<BTreeSet<PathBuf>> {
    let mut named = BTreeSet::new();
    for file in sources(sources_of) {
        let text = fs::read_to_string(&file).unwrap();
        let folder = file.strip_prefix(sources_of).unwrap().parent().unwrap();
        let mut lines = text.lines();
        while let Some(first) = lines.find_map(|line| line.strip_prefix(NAMES)) {
            let comment = lines.clone().map_while(|line| line.strip_prefix("// "));
            let comment = [first].into_iter().chain(comment).collect::<Vec<_>>().join(" ");
            let names = comment.split('`').skip(1).step_by(2);
            named.insert(names.map(|name| folder.join(name).with_extension("rs")).collect());
        }
    }
    named
}

/// The imports from some files to others, a line each.
fn lines(imports: &Imports, from: impl Fn(&Path) -> bool, to: impl Fn(&Path) -> bool) -> String {
    let mut lines = String::new();
    for (file, all) in imports.iter().filter(|(file, _)| from(file)) {
        for (other, all) in all.iter().filter(|(other, _)| to(other)) {
            for import in all {
                let (file, other) = (file.display(), other.display());
                lines += &format!("  {file}:{} uses {}, which {other} defines\n", import.line, import.path);
            }
        }
    }
    lines
}

#[test]
fn files_that_users_build_on_have_no_circle_but_the_named_ones() {
    let mut count = 0;
    for name in FOR_USERS {
        let sources = crates().join(name).join("src");
        let imports = Files::of(&sources).imports();
        let (found, named) = (circles(&imports), named_circles(&sources));
        if let Some(circle) = found.difference(&named).next() {
            panic!(
                "{name} has a circle of files:\n{}Move a name to the file where it belongs, and what makes a value to the file of that value. \
                 If the circle is real, name it in the `mod.rs` of its folder: `{NAMES}` and the files.",
                lines(&imports, |from| circle.contains(from), |to| circle.contains(to))
            );
        }
        if let Some(circle) = named.difference(&found).next() {
            panic!(
                "{name} names a circle that is none, or has lost or gained a file: {circle:?}. Correct the comment `{NAMES}`."
            );
        }
        count += found.len();
    }
    assert!(count <= CIRCLES, "there are {count} named circles, and {CIRCLES} may be: undo one");
}

#[test]
fn crates_import_those_below_them() {
    let found: Arrows = fs::read_dir(crates())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let files = sources(&entry.path().join("src"));
            let imports = files.iter().flat_map(|file| crates_in(&code(file))).filter(|other| *other != name);
            (name.clone(), imports.collect())
        })
        .collect();
    let expected: Arrows = CRATES
        .iter()
        .map(|&(name, below)| (name.to_owned(), below.iter().map(|&name| name.to_owned()).collect()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(circle(found), Arrows::new());
}

#[test]
fn imports_are_found_however_they_are_written() {
    let text =
        "use crate::a::x; use crate::{b::{y, z}, c, d as e}; crate::f::g(); $crate::no; super::super::h;";
    assert_eq!(names_behind(text, "crate::"), ["a", "b", "c", "d", "f"]);
    assert_eq!(names_behind(text, "super::super::"), ["h"]);
    assert_eq!(names_behind(text, "super::"), ["super"]);
    let text = r##"
        use super::a::{self, b::{c, d as e}, f};
        use g::*; // use super::no;
        pub(in crate::no) fn h() -> crate::i::J { "super::no"; r#"super::no"#; super::k::l::<'_'>(); $crate::no(); }
        mod m { use super::super::n; use super::o; }
        #[cfg(test)]
        mod tests { use super::no; }
    "##;
    let paths = files::paths_in(&files::without_tests(&files::without_comments(text)));
    let paths: BTreeSet<String> = paths.into_iter().map(|(_, path)| path.join("::")).collect();
    let expected = [
        "super::a",
        "super::a::b::c",
        "super::a::b::d",
        "super::a::f",
        "g::*",
        "crate::i::J",
        "super::k::l",
        "super::n",
        "self::o",
    ];
    assert_eq!(paths, expected.map(str::to_owned).into());
    let text = "use stillpoint_peers; use stillpoint::{a, b}; ::stillpoint_sys::c(); \"stillpoint\"; my_stillpoint::d;";
    let crates = ["stillpoint", "stillpoint-peers", "stillpoint-sys"];
    assert_eq!(crates_in(text), crates.map(str::to_owned).into());
    let arrow = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
    let found =
        circle([arrow("a", &["b"]), arrow("b", &["c", "d"]), arrow("c", &["b"]), arrow("d", &[])].into());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
}
