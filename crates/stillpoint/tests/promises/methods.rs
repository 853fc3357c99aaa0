//! Each public method of the table is called where its behaviour is checked.

use std::fs;

use super::complete::{files, folder};

/// The names of the public functions in a source.
fn public_functions(text: &str) -> Vec<&str> {
    let declarations = text.split("    pub fn ").skip(1);
    declarations.filter_map(|rest| Some(rest.split_at(rest.find(['<', '('])?).0)).collect()
}

#[test]
fn each_method_of_the_table_is_tested() {
    let read = |path| fs::read_to_string(path).expect("it can be read");
    let tests: String = files(&folder("tests/table")).into_iter().map(read).collect();
    let is_tested =
        |name: &str| [".", "::", "by_"].iter().any(|before| tests.contains(&format!("{before}{name}(")));
    let mut missing = Vec::new();
    for path in
        files(&folder("src/table")).into_iter().filter(|path| !path.iter().any(|part| part == "engine"))
    {
        let text = read(path.clone());
        let untested = public_functions(&text).into_iter().filter(|name| !is_tested(name));
        missing.extend(untested.map(|name| format!("{name}, in {}", path.display())));
    }
    assert!(
        missing.is_empty(),
        "add a test in tests/table for {missing:#?}; for the other places, see \"Add a method to `Table`\" in CONTRIBUTING.md"
    );
}
