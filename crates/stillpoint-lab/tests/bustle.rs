//! What a table needs to take part in `bustle`, a benchmark of maps by other authors: ten lines, without `unsafe`.

use std::sync::Arc;

use bustle::{Collection, CollectionHandle, Mix, Workload};
use stillpoint::rcu::Domain;
use stillpoint::table::{Table, TableHandle};

struct Ours(Arc<Table<u64, u64>>);

struct Handle(TableHandle<u64, u64>);

impl Collection for Ours {
    type Handle = Handle;

    fn with_capacity(capacity: usize) -> Self {
        Self(Arc::new(Table::with_capacity_in(&Domain::new(), capacity)))
    }

    fn pin(&self) -> Handle {
        Handle(self.0.handle())
    }
}

impl CollectionHandle for Handle {
    type Key = u64;

    fn get(&mut self, key: &u64) -> bool {
        self.0.reader().contains_key(key)
    }

    fn insert(&mut self, key: &u64) -> bool {
        self.0.insert(*key, 0).is_ok_and(|replaced| replaced.is_none())
    }

    fn remove(&mut self, key: &u64) -> bool {
        self.0.remove(key).is_some()
    }

    fn update(&mut self, key: &u64) -> bool {
        self.0.reader().update(key, |value| value + 1).is_ok_and(|replaced| replaced.is_some())
    }
}

/// The harness checks what each operation finds.
#[test]
fn a_table_takes_part_in_every_mix() {
    for mix in [Mix::read_heavy(), Mix::insert_heavy(), Mix::update_heavy(), Mix::uniform()] {
        let mut workload = Workload::new(2, mix);
        workload.initial_capacity_log2(10).prefill_fraction(0.5).operations(4.0).seed([7; 32]);
        assert_eq!(workload.run_silently::<Ours>().total_ops, 4096);
    }
}
