//! Every public function and type is in an example that runs, or refers to one that is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::complete::{files, folder, PRIVATE};

/// A public item, as the sources declare it.
struct Item {
    module: String,
    /// The type that has the function. Empty for types, and for functions of the module.
    owner: String,
    name: String,
    /// Its documentation.
    text: String,
}

impl Item {
    fn path(&self) -> String {
        let owner = if self.owner.is_empty() { String::new() } else { format!("{}::", self.owner) };
        format!("{}::{owner}{}", self.module, self.name)
    }

    fn is_type(&self) -> bool {
        self.name.starts_with(char::is_uppercase)
    }

    /// Whether these programs of its module use it. Its name without its type is enough where the name is clear: in the
    /// programs of its type or module, or if nothing else in the library has this name.
    fn is_in(&self, code: &str, is_clear: bool) -> bool {
        if self.owner.is_empty() {
            return has_word(code, &self.name);
        }
        let with_type = format!("{}::{}", self.owner, self.name);
        let without = ["::", "."].map(|dots| format!("{dots}{}", self.name));
        has_word(code, &with_type) || (is_clear && without.iter().any(|name| has_word(code, name)))
    }

    /// The items that the first paragraph of its documentation refers to: "As [`Type::name`](...)".
    fn twins(&self) -> Vec<String> {
        let paragraph = self.text.split("\n\n").next().unwrap_or_default();
        let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        let before = ["As [`", " as [`", "See [`", " see [`", "ade by [`"];
        let links = before.iter().flat_map(|before| paragraph.split(before).skip(1));
        links.filter_map(|rest| rest.split('`').next()?.rsplit("::").next()).map(str::to_owned).collect()
    }
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether `code` contains `word` as a whole word.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let begins = word.starts_with(['.', ':']) || !before.ends_with(is_of_word);
        begins && !after.starts_with(is_of_word)
    })
}

/// The lines of those programs in a text that compile.
fn code(text: &str) -> String {
    let (mut code, mut is_within, mut compiles) = (String::new(), false, false);
    for line in text.lines() {
        if let Some(attributes) = line.trim_start().strip_prefix("```") {
            is_within = !is_within;
            compiles = !["compile_fail", "text", "ignore", "console"]
                .iter()
                .any(|word| attributes.starts_with(word));
        } else if is_within && compiles {
            code += line;
            code.push('\n');
        }
    }
    code
}

/// The fence that begins a program which needs a feature.
fn fence_of_feature(line: &str) -> Option<&str> {
    line.strip_prefix("#[cfg_attr(all(")?.split_once("doc = \"")?.1.strip_suffix("\")]")
}

/// The type that an `impl` is for, from its first line.
fn type_of(header: &str) -> &str {
    let mut depth = 0;
    let end_of_list = header.char_indices().find(|&(_, character)| {
        depth += i32::from(character == '<') - i32::from(character == '>');
        depth == 0
    });
    let rest =
        if header.starts_with('<') { &header[end_of_list.map_or(0, |(at, _)| at + 1)..] } else { header };
    let rest = rest.trim_start();
    &rest[..rest.find(|character| !is_of_word(character)).unwrap_or(rest.len())]
}

/// The name of the public item that a line declares.
fn declared(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let mut rest = trimmed.strip_prefix("pub ")?;
    for word in ["const ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let types = ["struct ", "enum ", "trait "].iter().find_map(|keyword| rest.strip_prefix(keyword));
    // Indented types belong to a private module.
    let rest = types.filter(|_| trimmed.len() == line.len()).or_else(|| rest.strip_prefix("fn "))?;
    Some(&rest[..rest.find(|character| !is_of_word(character))?])
}

/// The public items of the library, and of the crates that stand on it, each of which counts as a module; and the programs
/// in the documentation of each module and type. If a function is there twice, for two sets of features, either one will do.
fn items() -> (Vec<Item>, BTreeMap<String, String>) {
    let sources = folder("src");
    let others =
        ["epoch", "multicast", "structures"].map(|name| (name, folder(&format!("../stillpoint-{name}/src"))));
    let of_others = others.iter().flat_map(|(_, folder)| files(folder));
    let mut items: BTreeMap<String, Item> = BTreeMap::new();
    let mut programs: BTreeMap<String, String> = BTreeMap::new();
    for file in files(&sources).into_iter().chain(of_others) {
        let other = others.iter().find_map(|(name, folder)| Some((*name, file.strip_prefix(folder).ok()?)));
        let (module, within) = other.unwrap_or_else(|| {
            let within = file.strip_prefix(&sources).expect("it is in one of the folders");
            let module = within.iter().next().expect("it has a name").to_str().expect("it is a name of ours");
            (module.trim_end_matches(".rs"), within)
        });
        let module = module.to_owned();
        // Hidden from the documentation.
        if within.ends_with("busted.rs") {
            continue;
        }
        let (mut owner, mut text, mut preface) = (String::new(), String::new(), String::new());
        let source = fs::read_to_string(&file).expect("it can be read");
        for line in source.lines() {
            let trimmed = line.trim_start();
            if let Some(header) = line.strip_prefix("impl").filter(|header| !header.ends_with("{}")) {
                owner = type_of(header).to_owned();
            } else if line == "}" {
                owner.clear();
            }
            if let Some(doc) = trimmed.strip_prefix("///").or_else(|| fence_of_feature(trimmed)) {
                text += doc;
                text.push('\n');
            } else if let Some(doc) = line.strip_prefix("//!") {
                preface += doc;
                preface.push('\n');
            } else if let Some(name) = declared(line) {
                let owner = if name.starts_with(char::is_uppercase) { String::new() } else { owner.clone() };
                let text = std::mem::take(&mut text);
                let of =
                    if owner.is_empty() { format!("{module}::{name}") } else { format!("{module}::{owner}") };
                *programs.entry(of).or_default() += &code(&text);
                let item = Item { module: module.clone(), owner, name: name.to_owned(), text };
                if !PRIVATE.contains(&&*item.path()) {
                    items.entry(item.path()).and_modify(|other| other.text += &item.text).or_insert(item);
                }
            } else if !trimmed.starts_with("#[") {
                text.clear();
            }
        }
        *programs.entry(module).or_default() += &code(&preface);
    }
    (items.into_values().collect(), programs)
}

#[test]
fn each_public_item_is_in_an_example_or_as_one_that_is() {
    let (items, programs) = items();
    assert!(items.len() > 500, "the sources are not read as they are written: {}", items.len());
    let is_unique = |item: &Item| items.iter().filter(|other| other.name == item.name).count() == 1;
    let is_shown = |item: &Item| {
        let own_type =
            format!("{}::{}", item.module, if item.owner.is_empty() { &item.name } else { &item.owner });
        let mut of_module = programs
            .iter()
            .filter(|(of, _)| **of == item.module || of.starts_with(&format!("{}::", item.module)));
        !code(&item.text).is_empty()
            || item.text.contains("[example]")
            // A function of the type has an example.
            || (item.is_type() && programs.get(&own_type).is_some_and(|code| !code.is_empty()))
            || of_module.any(|(of, code)| {
                let is_clear = *of == item.module || *of == own_type || is_unique(item);
                item.is_in(code, is_clear)
            })
    };
    let shown: BTreeSet<&str> = items.iter().filter(|item| is_shown(item)).map(|item| &*item.name).collect();
    let is_twin = |item: &Item| item.twins().iter().any(|twin| shown.contains(&**twin));
    let without: Vec<String> =
        items.iter().filter(|item| !is_shown(item) && !is_twin(item)).map(Item::path).collect();
    assert!(without.is_empty(), "{} in no example: {without:#?}", without.len());
}
