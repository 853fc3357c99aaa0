//! Manual pages, made from the headers: a page for each group of functions, and one for what a header says before them.
//!
//! A group begins with a comment of which the first line is a rule. The comment before a declaration describes it, and those that follow
//! without a blank line. Names that end with an underscore are not for programs, unless a macro has the name without it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::str::Lines;

use crate::tools::{failed, make_folder, write};
use crate::VERSION;

const HEADERS: [&str; 4] =
    ["stillpoint.h", "stillpoint/htimer.h", "stillpoint/bitset.h", "stillpoint/mempool.h"];
/// Lines of code are wrapped here.
const COLUMNS: usize = 71;

/// Writes the pages into `man3` and `man7`, with a file for each function that leads to its page.
pub(crate) fn write_pages(include: &Path, man: &Path) -> Result<(), String> {
    for section in ["man3", "man7"] {
        make_folder(&man.join(section))?;
    }
    let mut all = Vec::new();
    for header in HEADERS {
        let path = include.join(header);
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        all.extend(pages(header, &text));
    }
    let names: Vec<_> = all.iter().map(|page| (page.name.clone(), page.section())).collect();
    for page in all {
        let section = page.section();
        write(&man.join(format!("man{section}/{}.{section}", page.name)), page.text(&names))?;
        for name in page.words() {
            write(
                &man.join(format!("man3/{name}.3")),
                format!(".so man{section}/{}.{section}\n", page.name),
            )?;
        }
    }
    Ok(())
}

/// A comment, and what it describes.
#[derive(Debug, Default)]
struct Item {
    comment: Vec<String>,
    declarations: Vec<Declaration>,
    /// Whether the comment is about code, also such as programs do not use.
    describes_code: bool,
}

#[derive(Debug)]
struct Declaration {
    name: String,
    /// In one line; empty for types with fields.
    code: String,
    is_function: bool,
    /// Fields and constants with their comments.
    fields: Vec<(String, String)>,
}

#[derive(Debug)]
struct Page {
    header: &'static str,
    name: String,
    title: String,
    introduction: Vec<String>,
    items: Vec<Item>,
}

fn pages(header: &'static str, text: &str) -> Vec<Page> {
    let stem = header.trim_end_matches(".h").replace('/', "-");
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut introduction = comment(first, &mut lines);
    // The licence, and an empty line.
    introduction.drain(..2.min(introduction.len()));
    let title = introduction.first().map_or(String::new(), |line| summary(line));
    let mut pages =
        vec![Page { header, name: stem.clone(), title, introduction, items: vec![Item::default()] }];
    let macros: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("#define ")).filter_map(word).collect();
    while let Some(line) = lines.next() {
        let page = pages.last_mut().expect("there is the first page");
        let item = page.items.last_mut().expect("each page has an item");
        if line.starts_with("/* ---") {
            let title = comment("", &mut lines).concat();
            let (word, title) = title.split_once(": ").unwrap_or((&title, &title));
            let (name, title) = (format!("{stem}-{}", word.to_lowercase()), title.to_owned());
            pages.push(Page { header, name, title, introduction: Vec::new(), items: vec![Item::default()] });
        } else if line.starts_with("/*") {
            page.items.push(Item { comment: comment(line, &mut lines), ..Item::default() });
        } else if line.is_empty() {
            page.items.push(Item::default());
        } else if ["#ifdef __cplusplus", "#ifdef STILL_CHECKED", "#if defined(__has_include)"]
            .iter()
            .any(|branch| line.starts_with(branch))
        {
            skip_branch(&mut lines);
        } else if let Some(constant) = line.strip_prefix("#define ") {
            let mut end = line;
            while end.ends_with('\\') {
                end = lines.next().unwrap_or_default();
            }
            let name = word(constant).unwrap_or_default();
            item.describes_code = true;
            if name.starts_with("still_") || name.ends_with("_H") {
                continue;
            }
            let value = constant.split("/*").next().unwrap_or_default().trim_end_matches('\\').trim();
            let comment =
                constant.split_once("/*").map(|(_, text)| text.trim_end_matches("*/").trim().to_owned());
            let code = format!("#define {value}");
            let (code, fields) = match comment {
                Some(comment) => (String::new(), vec![(code, comment)]),
                None => (code, Vec::new()),
            };
            item.add(Declaration { name: name.to_owned(), code, is_function: false, fields }, &macros);
        } else if line.starts_with('#') {
            // What comes before is about the compiler.
            item.describes_code = true;
            page.items.push(Item::default());
        } else {
            declaration(line, &mut lines, item, &macros);
        }
    }
    for page in &mut pages {
        page.items
            .retain(|item| !item.declarations.is_empty() || !item.describes_code && !item.comment.is_empty());
    }
    pages.retain(|page| !page.items.is_empty() || !page.introduction.is_empty());
    pages
}

/// The lines of a comment that begins with `first`, without its marks.
fn comment(first: &str, lines: &mut Lines<'_>) -> Vec<String> {
    let plain = |line: &str| {
        let line = line.trim_end().trim_end_matches("*/").trim_end();
        let line = line.trim_start_matches("/*").strip_prefix(" *").unwrap_or(line.trim_start_matches("/*"));
        line.strip_prefix(' ').unwrap_or(line).to_owned()
    };
    let mut text = vec![plain(first)];
    let mut is_over = first.contains("*/");
    while !is_over {
        let Some(line) = lines.next() else { break };
        is_over = line.contains("*/");
        text.push(plain(line));
    }
    while text.last().is_some_and(String::is_empty) {
        text.pop();
    }
    text
}

/// Leaves out the lines until the end of a branch of the preprocessor.
fn skip_branch(lines: &mut Lines<'_>) {
    let mut depth = 1;
    for line in lines {
        depth += usize::from(line.starts_with("#if"));
        depth -= usize::from(line.starts_with("#endif"));
        if depth == 0 || depth == 1 && (line.starts_with("#else") || line.starts_with("#elif")) {
            return;
        }
    }
}

/// Adds the declaration that begins with `first`.
fn declaration(first: &str, lines: &mut Lines<'_>, item: &mut Item, macros: &BTreeSet<&str>) {
    let depth = |line: &str| {
        let code = line.split("/*").next().unwrap_or_default();
        code.matches('{').count() as isize - code.matches('}').count() as isize
    };
    let (mut whole, mut open) = (vec![first], depth(first));
    let mut has_body = first.contains('{');
    while open > 0 || !whole.last().is_some_and(|line| line.contains(';') || line.trim_end() == "}") {
        let Some(line) = lines.next() else { break };
        open += depth(line);
        has_body |= line.contains('{');
        whole.push(line);
    }
    let head = whole.join(" ");
    let head = head.split('{').next().unwrap_or_default();
    let is_type = (first.starts_with("struct ") || first.starts_with("enum ")) && !head.contains('(');
    let (code, fields) = match is_type && has_body {
        true => (head.trim().to_owned(), fields(&whole)),
        false => (
            ["static inline", "STILL_NODISCARD", "STILL_NOEXCEPT", ";"]
                .iter()
                .fold(head.to_owned(), |code, word| code.replace(word, "")),
            Vec::new(),
        ),
    };
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ").replace("* ", "*");
    let (before, _) = code.split_once('(').unwrap_or((&code, ""));
    let name = match before == code {
        true => before,
        false => before.rsplit([' ', '*']).next().unwrap_or_default(),
    };
    let is_function = before != code && !code.starts_with("typedef ");
    let name = name.to_owned();
    let code = if fields.is_empty() { format!("{code};") } else { String::new() };
    item.add(Declaration { name, code, is_function, fields }, macros);
}

/// The fields of a type and their comments.
fn fields(lines: &[&str]) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut is_comment = false;
    let inner = match lines {
        [only] => only.split(['{', '}']).nth(1).unwrap_or_default().split(',').collect::<Vec<_>>(),
        [_, inner @ .., _] => inner.to_vec(),
        [] => Vec::new(),
    };
    for line in inner {
        let (code, text) = match is_comment {
            true => ("", line),
            false => line.split_once("/*").unwrap_or((line, "")),
        };
        // Not for programs.
        if code.trim().ends_with("_;") {
            is_comment = false;
            continue;
        }
        if !code.trim().is_empty() {
            fields.push((code.trim().trim_end_matches(',').to_owned(), String::new()));
        }
        is_comment = (is_comment || line.contains("/*")) && !line.contains("*/");
        let text = text.trim().trim_end_matches("*/").trim_start_matches('*').trim();
        if let Some((_, comment)) = fields.last_mut() {
            let space = if comment.is_empty() { "" } else { " " };
            *comment += &format!("{space}{text}");
        }
    }
    fields
}

/// The identifier with which a line begins.
fn word(line: &str) -> Option<&str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|word| !word.is_empty())
}

/// What comes after the name of the header, up to a full stop.
fn summary(line: &str) -> String {
    let text = line.split_once(": ").map_or(line, |(_, text)| text);
    text.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

impl Item {
    /// Adds a declaration if programs may use the name.
    fn add(&mut self, mut declaration: Declaration, macros: &BTreeSet<&str>) {
        self.describes_code = true;
        if let Some(public) = declaration.name.strip_suffix('_') {
            if !macros.contains(public) || !declaration.is_function {
                return;
            }
            declaration.code = declaration.code.replace(&format!("{public}_("), &format!("{public}("));
            declaration.name = public.to_owned();
        }
        self.declarations.push(declaration);
    }

    fn text(&self) -> String {
        let mut text = match self.declarations.first() {
            Some(first) => format!(".SS {}\n", escaped(&first.name)),
            None => ".PP\n".to_owned(),
        };
        for Declaration { code, .. } in self.declarations.iter().filter(|one| !one.code.is_empty()) {
            text += &format!(".EX\n{}\n.EE\n", wrapped(code));
        }
        text += &prose(&self.comment);
        for (code, comment) in self.declarations.iter().flat_map(|one| &one.fields) {
            text += &format!(".TP\n.B {}\n{}\n", escaped(code), escaped(comment));
        }
        text
    }
}

impl Page {
    fn functions(&self) -> impl Iterator<Item = &str> {
        let declarations = self.items.iter().flat_map(|item| &item.declarations);
        declarations.filter(|declaration| declaration.is_function).map(|declaration| &*declaration.name)
    }

    /// Functions, types and constants, for which people look.
    fn words(&self) -> impl Iterator<Item = &str> {
        let declarations = self.items.iter().flat_map(|item| &item.declarations);
        declarations.filter_map(|declaration| declaration.name.rsplit(' ').next())
    }

    fn section(&self) -> u8 {
        if self.functions().next().is_some() {
            3
        } else {
            7
        }
    }

    /// `all`: the names and sections of all pages.
    fn text(&self, all: &[(String, u8)]) -> String {
        let Self { header, name, title, .. } = self;
        let mut text = format!(
            ".TH {} {} \"\" \"stillpoint {VERSION}\" \"stillpoint\"\n.nr HY 0\n.nh\n.ad l\n.SH NAME\n",
            name.to_uppercase(),
            self.section()
        );
        let mut functions: Vec<_> = self.functions().collect();
        if functions.is_empty() {
            functions.push(name);
        }
        text += &format!("{} \\- {}\n", functions.join(",\n"), escaped(title));
        text += &format!(".SH SYNOPSIS\n.nf\n.B #include <{header}>\n.PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs stillpoint) \\-pthread\n.fi\n.SH DESCRIPTION\n");
        text += &prose(&self.introduction);
        for item in &self.items {
            text += &item.text();
        }
        let others = all.iter().filter(|(other, _)| other != name);
        let others: Vec<_> =
            others.map(|(other, section)| format!(".BR {} ({section})", escaped(other))).collect();
        text += &format!(".SH SEE ALSO\nWords such as [owner], and errors of all functions, are explained in\n.BR stillpoint (7).\n.PP\n{}\n", others.join(",\n"));
        text
    }
}

/// Text of a comment: paragraphs, headings in capitals, lists of errors, and programs, which are indented.
fn prose(lines: &[String]) -> String {
    let mut text = String::new();
    let (mut is_code, mut is_list, mut begins) = (false, false, true);
    for line in lines {
        let indentation = line.len() - line.trim_start().len();
        let plain = line.trim();
        if plain.is_empty() {
            begins = true;
            continue;
        }
        let is_error = plain.starts_with("-E") && indentation >= 4;
        let is_heading =
            indentation == 0 && plain.chars().all(|c| c.is_ascii_uppercase() || c == ' ' || c == '-');
        let was_code = std::mem::replace(&mut is_code, indentation >= 4 && !is_error && !is_list);
        text += match (was_code, is_code) {
            (false, true) => ".PP\n.EX\n",
            (true, false) => ".EE\n",
            (true, true) if begins => "\n",
            _ => "",
        };
        let was_list = is_list;
        is_list = is_error || is_list && indentation >= 4;
        if is_heading {
            text += &format!(".SS {}\n", escaped(plain));
        } else if is_error {
            let (name, rest) = plain.split_once(' ').unwrap_or((plain, ""));
            text += &format!(".TP\n.B {}\n{}\n", escaped(name), escaped(rest.trim()));
        } else if is_code {
            text += &format!("{}\n", escaped(line.strip_prefix("    ").unwrap_or(line)));
        } else {
            text += if begins || was_code || (was_list && !is_list) { ".PP\n" } else { "" };
            text += &format!("{}\n", quoted(&escaped(plain)));
        }
        begins = is_heading;
    }
    text + if is_code { ".EE\n" } else { "" }
}

/// A line for `man`, which takes some characters for commands, and minus signs for hyphens.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

/// Names between backquotes, in italics. A single one begins or ends what another line goes on with.
fn quoted(line: &str) -> String {
    let parts: Vec<_> = line.split('`').collect();
    match parts.len() % 2 {
        0 => parts.concat(),
        _ => {
            let marked = parts.iter().enumerate().map(|(index, part)| match index % 2 {
                0 => (*part).to_owned(),
                _ => format!("\\fI{part}\\fR"),
            });
            marked.collect()
        }
    }
}

/// A declaration in lines that fit on a terminal.
fn wrapped(code: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in code.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > COLUMNS {
            lines.push(std::mem::take(&mut line));
            line = "   ".to_owned();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * some.h: things. And more.
 *
 *     int main(void);
 *
 * WORDS
 *   A word.
 *     -EINVAL  for NULL,
 *              and 0;
 *   An end.
 */
#ifndef SOME_H
#define SOME_H

/* ------------------------
 * Calls: some in C
 */

struct still_some {
    int one; /* first, and
              * more */
};

/* Calls. */
STILL_NODISCARD int still_call(struct still_some *some,
                               int two) STILL_NOEXCEPT;
int still_other(void) STILL_NOEXCEPT;

/* For nobody. */
int still_inner_(void) STILL_NOEXCEPT;

/* Loads. */
static inline void *still_load_(const void *link)
{
    return 0;
}
#define still_load(link) still_load_(link)

#endif
";

    #[test]
    fn groups_functions_and_fields_are_found() {
        let pages = pages("stillpoint.h", HEADER);
        let [whole, group] = &pages[..] else { panic!("{pages:?}") };
        assert_eq!((whole.section(), &*whole.title), (7, "things"));
        let text = whole.text(&[]);
        for part in [
            ".EX\nint main(void);\n.EE\n",
            ".SS WORDS\n.PP\nA word.\n",
            ".TP\n.B \\-EINVAL\nfor NULL,\nand 0;\n.PP\nAn end.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!((group.section(), &*group.name), (3, "stillpoint-calls"));
        assert_eq!(group.functions().collect::<Vec<_>>(), ["still_call", "still_other", "still_load"]);
        let text = group.text(&[]);
        for part in [
            ".SS struct still_some\n.TP\n.B int one;\nfirst, and more\n",
            ".SS still_call\n.EX\nint still_call(struct still_some *some, int two);\n.EE\n.EX\nint still_other(void);\n.EE\n.PP\nCalls.\n",
            "void *still_load(const void *link);\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("nobody") && !text.contains("inner"), "{text}");
    }
}
