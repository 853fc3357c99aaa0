//! Serialization of tables and sets. `cargo test -p stillpoint --features serde --test serde`.

#![cfg(feature = "serde")]

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::DeserializeSeed;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::de::StrRead;
use stillpoint::rcu::{self, Domain};
use stillpoint::table::{Set, Table};

fn text(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("it can be serialized")
}

fn read<T>(
    text: &str,
    into: impl FnOnce(&mut serde_json::Deserializer<StrRead<'_>>) -> serde_json::Result<T>,
) -> Result<T, String> {
    into(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())
}

#[test]
fn a_table_comes_back_as_it_was() {
    for entries in [0, 1, 1_000_u64] {
        let domain = Domain::new();
        let table = Table::from_iter_in(&domain, (0..entries).map(|key| (key, format!("<{key}>"))));
        let text = text(&table);
        let as_map: HashMap<u64, String> = serde_json::from_str(&text).expect("the text is a map");
        assert_eq!(as_map.len() as u64, entries);
        let other = Domain::new();
        let again = read(&text, |text| Table::<u64, String>::builder_in(&other).deserialize(text));
        let again = again.expect("the text is complete");
        let _ = again.within(&other.reader().pin()); // the table is of that domain
        assert_eq!(HashMap::from_iter(again), as_map);
        let again: Table<u64, String> = serde_json::from_str(&text).expect("the text is a map");
        assert_eq!(HashMap::from_iter(again), as_map);
        assert_eq!(HashMap::from_iter(table), as_map);
    }
}

#[test]
fn a_set_comes_back_as_it_was() {
    let mut set = Set::new_in(&Domain::new());
    set.extend(["a", "b", "c"].map(String::from));
    let again: Set<String> = serde_json::from_str(&text(&set)).expect("the text is a sequence");
    let _ = again.within(&rcu::pin()); // the set is of the default domain
    assert_eq!(BTreeSet::from_iter(again), BTreeSet::from_iter(set));
    assert!(serde_json::from_str::<Set<u64>>("[]").expect("a sequence").is_empty());
}

#[test]
fn of_keys_that_are_there_twice_the_last_one_stays() {
    let table: Table<String, u64> = serde_json::from_str(r#"{"a": 1, "b": 2, "a": 3}"#).expect("a map");
    assert_eq!((table.len(), table.pin().get("a")), (2, Some(&3)));
    let set: Set<u64> = serde_json::from_str("[1, 1, 1]").expect("a sequence");
    assert_eq!(set.len(), 1);
}

#[test]
fn bad_input_is_an_error() {
    for text in ["", "[1]", "7", r#"{"a": 1"#, r#"{"a": "one"}"#, r#"{"a": 1} 2"#, "null"] {
        assert!(serde_json::from_str::<Table<String, u64>>(text).is_err(), "{text}");
    }
    for text in ["", "{}", "7", "[1", r#"["one"]"#, "[1] 2", "null", "[-1]"] {
        assert!(serde_json::from_str::<Set<u64>>(text).is_err(), "{text}");
    }
}

/// Entries read before the error are dropped.
#[test]
fn a_table_that_is_full_is_an_error() {
    let domain = Domain::new();
    let seed = |len| Table::<u64, u64>::builder_in(&domain).max_len(len);
    let text = r#"{"1": 1, "2": 2, "3": 3}"#;
    let error = read(text, |text| seed(2).deserialize(text)).expect_err("there is room for only two");
    assert!(error.contains("no room"), "{error}");
    assert_eq!(read(text, |text| seed(3).deserialize(text)).map(|table| table.len()), Ok(3));
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Counts its deserializations and drops.
struct Counted;

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer)?;
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn what_was_read_before_an_error_is_dropped() {
    let domain = Domain::new();
    let seed = || Table::<u64, Counted>::builder_in(&domain);
    let table = read(r#"{"1": 1, "2": 2}"#, |text| seed().deserialize(text)).expect("the text is complete");
    assert_eq!(ALIVE.load(Ordering::Relaxed), 2);
    drop(table);
    assert!(read(r#"{"1": 1, "2": 2, "3": "three"}"#, |text| seed().deserialize(text)).is_err());
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
}
