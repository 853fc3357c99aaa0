//! The same operations on a table and on the standard library's map.

use std::collections::HashMap;

use proptest::prelude::*;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::{Census, Counted};

#[derive(Debug, Clone)]
enum Operation {
    Insert(u64, u64),
    Remove(u64),
    GetOrInsert(u64, u64),
    Update(u64, u64),
    RemoveIf(u64, u64),
    Get(u64),
    GetMany([u64; 4]),
    RetainMultiples(u64),
    Clear,
    Reserve(usize),
    Poll,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let key = || 0..400u64;
    prop_oneof![
        20 => (key(), any::<u64>()).prop_map(|(key, value)| Insert(key, value)),
        10 => (0..100_000u64, any::<u64>()).prop_map(|(key, value)| Insert(key, value)),
        8 => key().prop_map(Remove),
        4 => (key(), any::<u64>()).prop_map(|(key, value)| GetOrInsert(key, value)),
        4 => (key(), any::<u64>()).prop_map(|(key, value)| Update(key, value)),
        4 => (key(), any::<u64>()).prop_map(|(key, value)| RemoveIf(key, value)),
        10 => key().prop_map(Get),
        4 => prop::array::uniform4(key()).prop_map(GetMany),
        1 => (1..5u64).prop_map(RetainMultiples),
        1 => Just(Clear),
        1 => (0..3_000usize).prop_map(Reserve),
        2 => Just(Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_behaves_as_the_standard_map(operations in prop::collection::vec(operation(), 1..3_000)) {
        let census = Census::default();
        let domain = Domain::new();
        let table: Table<Counted, u64> = Table::new_in(&domain);
        let (mut reader, other) = (domain.reader(), domain.reader());
        let mut lookup = table.reader(&mut reader);
        let mut map: HashMap<u64, u64> = HashMap::new();
        for operation in operations {
            match operation {
                Operation::Insert(key, value) => {
                    let old = table.insert(census.value(key), value).unwrap();
                    prop_assert_eq!(old.map(|old| *old), map.insert(key, value));
                }
                Operation::Remove(key) => {
                    prop_assert_eq!(table.remove(&key).map(|old| *old), map.remove(&key));
                }
                Operation::GetOrInsert(key, value) => {
                    let (entry, _) = lookup.get_or_insert_with(census.value(key), || value).unwrap();
                    prop_assert_eq!(*entry, *map.entry(key).or_insert(value));
                }
                Operation::Update(key, value) => {
                    let old = lookup.update(&key, |old| old ^ value).unwrap().map(|old| *old);
                    let expected = map.get(&key).copied();
                    map.entry(key).and_modify(|old| *old ^= value);
                    prop_assert_eq!(old, expected);
                }
                Operation::RemoveIf(key, value) => {
                    let removed = lookup.remove_if(&key, |_, found| *found >= value).ok().flatten().map(|old| *old);
                    let expected = map.get(&key).copied().filter(|found| *found >= value);
                    if expected.is_some() {
                        map.remove(&key);
                    }
                    prop_assert_eq!(removed, expected);
                }
                Operation::Get(key) => {
                    let expected = map.get(&key).copied();
                    prop_assert_eq!(lookup.copied(&key), expected);
                    prop_assert_eq!(lookup.pin().get(&key).copied(), expected);
                }
                Operation::GetMany(keys) => {
                    let guard = lookup.pin();
                    prop_assert_eq!(guard.get_many(&keys), keys.map(|key| map.get(&key)));
                }
                Operation::RetainMultiples(of) => {
                    table.within(&other.pin()).retain(|key, _| key.value % of == 0);
                    map.retain(|key, _| key % of == 0);
                }
                Operation::Clear => {
                    table.clear();
                    map.clear();
                }
                Operation::Reserve(more) => table.reserve(more).unwrap(),
                Operation::Poll => _ = table.poll(),
            }
            prop_assert_eq!(table.len(), map.len());
        }
        let guard = other.pin();
        let mut entries: Vec<(u64, u64)> = table.within(&guard).iter().map(|(key, value)| (key.value, *value)).collect();
        entries.sort_unstable();
        let mut expected: Vec<(u64, u64)> = map.into_iter().collect();
        expected.sort_unstable();
        prop_assert_eq!(entries, expected);
        drop(guard);
        drop(lookup);
        table.poll();
        drop(table);
        prop_assert_eq!(census.alive(), 0);
    }
}
