//! How many types a module shows on its own page, at its door. The others are one level down, in public modules with a page each.

use std::fs;

use super::complete::folder;

/// How many types may be at the door of each module. Lower a number when types have moved; do not raise it.
const RCU: usize = 20;
const TIMER: usize = 15;
const POOL: usize = 12;
const TABLE: usize = 19;

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The last name of a path: in `inner::Type as Name`, the new one.
fn last_name(path: &str) -> Option<&str> {
    path.rsplit(|character| !is_of_name(character)).find(|name| !name.is_empty())
}

/// The types that the text of a `mod.rs` makes public: those it re-exports, and those it declares.
fn types_at_the_door(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    for statement in text.split("\npub use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        assert!(!statement.contains('*'), "a type must be named to be counted: pub use {statement}");
        types.extend(statement.split(['{', '}', ',']).filter_map(last_name));
    }
    let declarations = ["struct ", "enum ", "union ", "trait ", "unsafe trait ", "type "];
    for rest in text.split("\npub ").skip(1) {
        let name = declarations.iter().find_map(|keyword| rest.strip_prefix(keyword));
        types.extend(name.and_then(|name| name.split(|character| !is_of_name(character)).next()));
    }
    types.retain(|name| name.starts_with(char::is_uppercase));
    types
}

#[test]
fn a_module_shows_few_types_at_its_door() {
    for (module, limit) in [("rcu", RCU), ("timer", TIMER), ("pool", POOL), ("table", TABLE)] {
        let page = folder("src").join(module).join("mod.rs");
        let text = fs::read_to_string(&page).expect("it can be read");
        let types = types_at_the_door(&text);
        assert!(types.len() > 9, "the page of `{module}` is not read as it is written: {types:?}");
        assert!(
            types.len() <= limit,
            "`{module}` shows {} types, and {limit} may be. Put those that few programs name one level down, in a public \
             module with a page: {types:?}",
            types.len()
        );
    }
}

#[test]
fn types_are_counted_however_they_are_written() {
    let text = "
mod inner;
pub use inner::{One, function, deep::Two, Three as Four};
pub use other::Five;
pub use other::{
    Six,
};
pub(crate) use inner::Hidden;
use inner::Private;
pub type Seven = One;
pub unsafe trait Eight {}
pub fn made() -> One {}
";
    let mut types = types_at_the_door(text);
    types.sort_unstable();
    assert_eq!(types, ["Eight", "Five", "Four", "One", "Seven", "Six", "Two"]);
}
