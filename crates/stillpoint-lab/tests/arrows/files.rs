//! The imports among the files of a crate: which file uses a name that another one defines.
//!
//! Code counts that users get: no test, no model. A name counts where it is defined, also if it is imported from a file that only
//! re-exports it. A file and the files below it in its folder count as one room: a `mod.rs` gathers what lies below, and what lies below
//! uses what the `mod.rs` defines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module, as names.
type Module = Vec<String>;

/// An import: the line, and the path that is written there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    pub(super) line: usize,
    pub(super) path: String,
}

/// For each file of a crate, the imports of names that other files define, by file. Files are relative to the sources.
pub(super) type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<Import>>>;

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// As long as the text, line by line, but without comments, strings, tests and models.
    code: String,
    defines: BTreeSet<String>,
    /// What `use` brings into the file: the name, and the path to it. A glob has the name `*`.
    brings: Vec<(String, Vec<String>)>,
}

/// The files of a crate.
#[derive(Debug)]
pub(super) struct Files(BTreeMap<Module, File>);

impl Files {
    /// Follows the modules from `lib.rs`.
    pub(super) fn of(sources: &Path) -> Self {
        let mut files = Self(BTreeMap::new());
        files.read(Vec::new(), sources, PathBuf::from("lib.rs"));
        files
    }

    fn read(&mut self, module: Module, sources: &Path, path: PathBuf) {
        let code = without_tests(&without_comments(&fs::read_to_string(sources.join(&path)).unwrap()));
        let is_folder = module.is_empty() || path.ends_with("mod.rs");
        let folder = if is_folder { path.parent().unwrap().to_owned() } else { path.with_extension("") };
        for name in modules_in(&code) {
            let places = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
            // A module in the same file, or one that a test includes by its path, has no such place.
            let Some(place) = places.into_iter().find(|place| sources.join(place).exists()) else { continue };
            self.read([&module[..], &[name.to_owned()]].concat(), sources, place);
        }
        let brings = uses(&code).into_iter().flat_map(|(_, tree)| leaves(tree)).collect();
        let defines = defined_in(&code);
        self.0.insert(module, File { path, code, defines, brings });
    }

    /// Follows a path through the modules of this crate. Returns the last module, and the names behind it.
    fn walk<'p>(&self, from: &[String], mut path: &'p [String]) -> (Module, &'p [String]) {
        let mut at = from.to_vec();
        while let Some(first) = path.first() {
            let below = [&at[..], &path[..1]].concat();
            match first.as_str() {
                "crate" => at.clear(),
                "super" => _ = at.pop(),
                "self" => {}
                _ if self.0.contains_key(&below) => at = below,
                _ => break,
            }
            path = &path[1..];
        }
        (at, path)
    }

    /// The modules whose files define what the path names: several if it depends on the build, none if it is not of this crate.
    /// `seen` are the paths on the way.
    fn find(
        &self,
        from: &[String],
        path: &[String],
        seen: &mut BTreeSet<(Module, Vec<String>)>,
    ) -> BTreeSet<Module> {
        let (at, path) = self.walk(from, path);
        let [name, rest @ ..] = path else { return BTreeSet::from([at]) };
        let file = &self.0[&at];
        if name == "*" || file.defines.contains(name) {
            return BTreeSet::from([at]);
        }
        if !seen.insert((at.clone(), path.to_vec())) {
            return BTreeSet::new();
        }
        // Names of other crates are not followed.
        let is_ours = |to: &[String]| self.walk(&at, to).1.len() < to.len();
        let through = |(brought, to): &(String, Vec<String>)| match brought {
            _ if !is_ours(to) => None,
            _ if brought == name => Some([&to[..], rest].concat()),
            _ if brought == "*" => Some([&to[..to.len() - 1], path].concat()),
            _ => None,
        };
        file.brings.iter().filter_map(through).flat_map(|path| self.find(&at, &path, seen)).collect()
    }

    /// All imports, also those between a file and the files below it.
    pub(super) fn all_imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, file) in &self.0 {
            for (place, path) in paths_in(&file.code) {
                let (room, rest) = self.walk(module, &path);
                // What is not found where the path leads comes from a macro there, or from another crate.
                let mut all = self.find(module, &path, &mut BTreeSet::new());
                if all.is_empty() && rest.len() < path.len() {
                    all.insert(room);
                }
                for to in all.into_iter().filter(|to| to != module) {
                    let line = file.code[..place].lines().count().max(1);
                    let import = Import { line, path: path.join("::") };
                    imports
                        .entry(file.path.clone())
                        .or_default()
                        .entry(self.0[&to].path.clone())
                        .or_default()
                        .insert(import);
                }
            }
        }
        imports
    }

    /// The imports that count for circles.
    pub(super) fn imports(&self) -> Imports {
        let modules: BTreeMap<&PathBuf, &Module> =
            self.0.iter().map(|(module, file)| (&file.path, module)).collect();
        let mut imports = self.all_imports();
        for (from, all) in &mut imports {
            let from = modules[from];
            all.retain(|to, _| !from.starts_with(modules[to]) && !modules[to].starts_with(from));
        }
        imports
    }
}

/// The circles: sets of files, each of which imports every other one, directly or through others of the set.
pub(super) fn circles(imports: &Imports) -> BTreeSet<BTreeSet<PathBuf>> {
    let reached = |from: &PathBuf| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(file) = next.pop() {
            let new = imports
                .get(&file)
                .into_iter()
                .flat_map(BTreeMap::keys)
                .filter(|to| reached.insert((*to).clone()));
            next.extend(new.cloned().collect::<Vec<_>>());
        }
        reached
    };
    let reach: BTreeMap<&PathBuf, BTreeSet<PathBuf>> =
        imports.keys().map(|file| (file, reached(file))).collect();
    let of = |(file, all): (&&PathBuf, &BTreeSet<PathBuf>)| {
        let circle = all.iter().filter(|to| reach.get(to).is_some_and(|back| back.contains(*file)));
        circle.cloned().collect::<BTreeSet<_>>()
    };
    reach.iter().map(of).filter(|circle| circle.len() > 1).collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn name_at(text: &str) -> &str {
    &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())]
}

/// Writes blanks in place of text, but keeps its lines.
fn blank(text: &str) -> String {
    text.chars().flat_map(|c| std::iter::repeat_n(if c == '\n' { c } else { ' ' }, c.len_utf8())).collect()
}

/// The text with blanks in place of comments, strings and characters.
pub(super) fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest).filter(|_| !code.ends_with(is_name)) {
            let (begin, end) = (rest.find('"').unwrap() + 1, format!("\"{}", "#".repeat(hashes)));
            begin + rest[begin..].find(&end).unwrap() + end.len()
        } else if c == '"' {
            quoted(rest, '"').unwrap()
        } else if c == '\'' && (rest[1..].starts_with('\\') || rest[1..].chars().nth(1) == Some('\'')) {
            quoted(rest, '\'').unwrap()
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code += &blank(&rest[..length]);
        rest = &rest[length..];
    }
    code
}

/// The number of hashes, if a raw string begins here.
fn raw_string(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('b').unwrap_or(text).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// The length of what stands in these quotes.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = true;
    let end = text.char_indices().find(|&(_, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// The code with blanks in place of tests and models.
pub(super) fn without_tests(code: &str) -> String {
    let marks =
        ["#[test]", "#[cfg(test", "#[cfg(all(test", "#[cfg(stillpoint_loom)", "#[cfg(all(stillpoint_loom"];
    let mut code = code.to_owned();
    while let Some(begin) = marks.iter().filter_map(|mark| code.find(mark)).min() {
        let attribute = begin + code[begin..].find(']').unwrap() + 1;
        let end = attribute + item(&code[attribute..]);
        code.replace_range(begin..end, &blank(&code[begin..end]));
    }
    code
}

/// The length of an item, a statement or a field.
fn item(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' => depth -= 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The places behind a keyword that is not part of a type, as in `*const` and `'static`.
fn behind<'t>(code: &'t str, keyword: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_word = move |at: usize| {
        !code[..at].ends_with(|c| is_name(c) || c == '*' || c == '\'')
            && code[at + keyword.len()..].starts_with(char::is_whitespace)
    };
    code.match_indices(keyword).filter(move |&(at, _)| is_word(at)).map(move |(at, _)| at + keyword.len() + 1)
}

/// The names of the modules that are in files of their own.
fn modules_in(code: &str) -> Vec<&str> {
    let names = behind(code, "mod").map(|at| (name_at(&code[at..]), at));
    names
        .filter(|(name, at)| code[at + name.len()..].trim_start().starts_with(';'))
        .map(|(name, _)| name)
        .collect()
}

fn defined_in(code: &str) -> BTreeSet<String> {
    let kinds = ["struct", "enum", "union", "trait", "fn", "const", "static", "type", "macro_rules!"];
    let names = kinds.iter().flat_map(|kind| behind(code, kind)).map(|at| name_at(&code[at..]).to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The trees of all `use`, and where they stand.
fn uses(code: &str) -> Vec<(usize, &str)> {
    behind(code, "use").filter_map(|at| Some((at, &code[at..at + code[at..].find(';')?]))).collect()
}

/// The names that a tree brings, with their paths.
fn leaves(tree: &str) -> Vec<(String, Vec<String>)> {
    let Some((stem, list)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let path: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
        // A path that begins with `::` names another crate.
        return if path[0].is_empty() {
            Vec::new()
        } else {
            vec![(alias.map_or(path.last().unwrap().clone(), |alias| alias.trim().to_owned()), path)]
        };
    };
    let stem: Vec<String> =
        stem.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let mut list = &list[..list.rfind('}').unwrap()];
    let mut all = Vec::new();
    while !list.trim().is_empty() {
        let length = list.char_indices().scan(0, |depth, (at, c)| {
            *depth += i32::from(c == '{') - i32::from(c == '}');
            Some((*depth == 0 && c == ',').then_some(at))
        });
        let length = length.flatten().next().unwrap_or(list.len());
        for (name, path) in leaves(&list[..length]) {
            let is_self = path == ["self"];
            let path = if is_self { stem.clone() } else { [&stem[..], &path[..]].concat() };
            let name = if is_self && name == "self" { stem.last().unwrap().clone() } else { name };
            all.push((name, path));
        }
        list = list.get(length + 1..).unwrap_or("");
    }
    all
}

/// The modules within the file that are open at a place.
fn modules_around(code: &str, place: usize) -> usize {
    let bodies = behind(&code[..place], "mod").filter_map(|at| {
        let begin = at + name_at(&code[at..]).len();
        code[begin..].trim_start().starts_with('{').then(|| begin..begin + item(&code[begin..]))
    });
    bodies.filter(|body| body.contains(&place)).count()
}

/// The paths of all `use`, and the others that begin with `crate`, `self` or `super`, as the file itself would write them.
pub(super) fn paths_in(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    let mut rest = code.to_owned();
    for (at, tree) in uses(code) {
        rest.replace_range(at..at + tree.len(), &blank(tree));
        paths.extend(leaves(tree).into_iter().map(|(_, path)| (at, path)));
    }
    for root in ["crate", "self", "super"] {
        for (at, _) in rest.match_indices(root) {
            // A visibility imports nothing.
            let is_first = !rest[..at].ends_with(|c| is_name(c) || c == ':' || c == '$')
                && !rest[..at].ends_with("pub(in ");
            let length = rest[at..].find(|c| !is_name(c) && c != ':').unwrap_or(rest.len() - at);
            let path = rest[at..at + length].trim_end_matches(':');
            if is_first && path.starts_with(&format!("{root}::")) {
                paths.push((at, path.split("::").map(str::to_owned).collect()));
            }
        }
    }
    for (at, path) in &mut paths {
        // What is `super` in a module within the file is the file itself.
        let around = modules_around(code, *at).min(path.iter().take_while(|name| *name == "super").count());
        path.drain(..around);
        if around > 0 && path.first().is_none_or(|name| name != "super") {
            path.insert(0, "self".to_owned());
        }
    }
    paths
}
