//! Every page is in the book, every link leads somewhere, and every program in it is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::complete::folder;

/// The `.md` files below `folder`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries =
        folder.read_dir().expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let of = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => pages(&path),
        Some(extension) if extension == "md" => vec![path],
        _ => Vec::new(),
    };
    entries.flat_map(of).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines outside programs.
fn prose(text: &str) -> String {
    let mut is_program = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_program ^= is_fence;
        !is_fence && !is_program
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The text of each link, and its target.
fn links(text: &str) -> Vec<(String, String)> {
    let text = prose(text);
    let of = |(at, _): (usize, &str)| {
        let shown = text[..at].rsplit('[').next().unwrap_or_default();
        let target = text[at + 2..].split(')').next().unwrap_or_default();
        (shown.to_owned(), target.to_owned())
    };
    text.match_indices("](").map(of).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let of = |line: &str| line.starts_with('#').then(|| anchor(line.trim_start_matches('#')));
    prose(text).lines().filter_map(of).collect()
}

/// Why a link of `page` leads nowhere, if it does.
fn wrong(page: &Path, shown: &str, target: &str) -> Option<&'static str> {
    if target.starts_with("https://") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.parent().expect("a page is in a folder");
    let file = if path.is_empty() { page.to_owned() } else { folder.join(path) };
    if !file.exists() {
        return Some("there is no such file");
    }
    if !heading.is_empty() && !anchors(&read(&file)).contains(heading) {
        return Some("there is no such heading");
    }
    // Whether the link is named after a test. One that names its own file is not.
    let name = shown.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or_default();
    let is_function = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_source = file.extension().is_some_and(|extension| extension == "rs");
    let is_test = is_function && is_source && !path.contains(name);
    (is_test && !read(&file).contains(&format!("fn {name}("))).then_some("there is no such test")
}

#[test]
fn every_page_is_in_the_summary_once() {
    let docs = folder("../../docs");
    let summary = docs.join("SUMMARY.md");
    let mut listed: Vec<PathBuf> =
        links(&read(&summary)).into_iter().map(|(_, target)| docs.join(target)).collect();
    let mut there = pages(&docs);
    there.retain(|page| *page != summary);
    listed.sort();
    there.sort();
    assert!(there.len() > 20, "the pages have moved: {there:?}");
    assert_eq!(listed, there);
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = pages(&folder("../../docs"));
    let others = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "kernel/README.md"];
    pages.extend(others.map(|name| folder("../..").join(name)));
    let (mut wrongs, mut count) = (Vec::new(), 0);
    for page in &pages {
        for (shown, target) in links(&read(page)) {
            count += 1;
            let why = wrong(page, &shown, &target);
            wrongs.extend(why.map(|why| format!("{}: {target}: {why} ({shown})", page.display())));
        }
    }
    assert!(count > 300, "this test does not find links as they are written now: {count}");
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

/// The programs of a page are compiled with the documentation of the library, or of the crate that the page is about.
#[test]
fn every_program_in_rust_is_compiled() {
    let crates =
        folder("..").read_dir().expect("it is there").map(|entry| entry.expect("it can be read").path());
    let sources: String =
        crates.filter_map(|path| fs::read_to_string(path.join("src/lib.rs")).ok()).collect();
    let mut with_programs = 0;
    for page in pages(&folder("../../docs")) {
        if read(&page).contains("```rust\n") {
            with_programs += 1;
            let stem = page.file_stem().expect("a page has a name").to_string_lossy();
            let names = [format!("\"{stem}\" as "), format!("docs/guide/{stem}.md\")")];
            assert!(names.iter().any(|name| sources.contains(name)), "{stem}.md is in no src/lib.rs");
        }
    }
    assert!(with_programs > 7, "this test does not find programs as they are written now: {with_programs}");
}

#[test]
fn what_leads_nowhere_is_found() {
    let page = folder("../../docs/guide/rcu.md");
    let text = "[a](operation.md) ![b\nc](x.svg)\n```\n[no](no)\n```\n[`f`](y.rs#z)";
    let found: Vec<_> = links(text).into_iter().map(|(shown, target)| format!("{shown}: {target}")).collect();
    assert_eq!(found, ["a: operation.md", "b\nc: x.svg", "`f`: y.rs#z"]);
    assert_eq!(anchor(" In the `kernel's` own_one"), "in-the-kernels-own_one");
    assert_eq!(wrong(&page, "", "operation.md#backpressure"), None);
    assert_eq!(wrong(&page, "", "#the-reader"), None);
    assert!(wrong(&page, "", "no.md").is_some());
    assert!(wrong(&page, "", "operation.md#no").is_some());
    let this = "../../crates/stillpoint/tests/promises/book.rs";
    assert_eq!(wrong(&page, "`what_leads_nowhere_is_found`", this), None);
    assert!(wrong(&page, "`what_leads_nowhere_is_there`", this).is_some());
}

/// The parts of `text` between backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The table of steps and broken variants in the page of `rcu` has all variants that a model catches, and names these models.
#[test]
fn the_table_of_broken_variants_names_the_models() {
    let source = |path: &str| read(&folder("src").join(path));
    let (controls, variants) = (source("rcu/models/controls.rs"), source("busted.rs"));
    let name_of = |variant: &str| {
        let rest = variants.split(&format!("    {variant} = \"")).nth(1).expect("a variant has a name");
        rest.split('"').next().unwrap_or_default()
    };
    let rows = controls.split("(Variant::").skip(1).filter_map(|row| row.split_once(", \""));
    let mut caught = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (variant, rest) in rows {
        let model = rest.split('"').next().unwrap_or_default();
        caught.entry(name_of(variant)).or_default().insert(model);
    }
    let page = read(&folder("../../docs/design/rcu.md"));
    let table = page.split("| step | variants | caught by the models |").nth(1).expect("the table is there");
    let mut named = BTreeSet::new();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').collect();
        let (step, of_step, models) =
            (cells[1], quoted(cells[2]), quoted(cells[3].split(" (").next().unwrap()));
        // The door's models are in another crate.
        if !of_step.iter().any(|variant| variant.starts_with("door:")) {
            let expected: BTreeSet<_> =
                of_step.iter().filter_map(|variant| caught.get(variant)).flatten().copied().collect();
            assert_eq!(models, expected, "step {step}");
            named.extend(of_step);
        }
    }
    assert!(caught.len() > 50 && caught.keys().copied().eq(named), "{caught:?}");
}
