//! Handles of a separate domain, dropped in any order. Whichever is the last, no object is left.

use std::any::Any;
use std::future::Future;
use std::task::{Context, Waker};

use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{Domain, RcuArray, RcuCell};
use stillpoint::table::Table;

use crate::census::{Census, Object};
use crate::random::Random;
use crate::world::World;

pub(crate) fn in_any_order(world: &World, random: &mut Random) {
    let census = Census::default();
    let mut chest = filled(world, &census, random);
    while !chest.is_empty() {
        drop(chest.swap_remove(random.below(chest.len())));
    }
    assert_eq!(census.alive(), 0, "the domain was dropped, but not all of its objects");
}

fn filled(world: &World, census: &Census, random: &mut Random) -> Vec<Box<dyn Any>> {
    let mut builder = Domain::builder().fence(world.domain.fence_mode());
    if random.below(2) == 0 {
        builder = builder.max_pending(1 + random.below(4));
    }
    let domain = builder.build().expect("the mode was probed");
    let mut chest: Vec<Box<dyn Any>> = vec![Box::new(domain.clone())];
    for _ in 0..random.below(if cfg!(miri) { 8 } else { 20 }) {
        let item: Box<dyn Any> = match random.below(12) {
            0 => {
                let reader = domain.reader();
                if random.below(3) == 0 {
                    std::mem::forget(reader.pin());
                }
                Box::new(reader)
            }
            1 => Box::new(domain.qsbr_reader()),
            2 => Box::new(domain.qsbr_reader().go_offline()),
            3 => Box::new(RcuCell::new_in(&domain, census.object())),
            4 => Box::new(RcuArray::new_in(&domain, 3, |_| Some(Box::new(census.object())))),
            5 => Box::new(RcuCell::new_in(&domain, census.object()).take()),
            6 => {
                let mut future = Box::pin(domain.grace_period(domain.start()));
                let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                Box::new(future)
            }
            7 | 8 => {
                let mut reclaimer =
                    domain.reclaimer_builder().max_pending(2).when_full(WhenFull::Reclaim).build();
                for _ in 0..random.below(4) {
                    let cell = RcuCell::new_in(&domain, census.object());
                    // An object that it does not take is left to the domain.
                    let _ = reclaimer.retire(cell.take().expect("it is full"));
                }
                Box::new(reclaimer)
            }
            9 | 10 => {
                let background = domain.reclaimer_builder().max_pending(2).build_background();
                let handle = background.retire_handle();
                if random.below(2) == 0 {
                    let cell = RcuCell::new_in(&domain, RcuCell::new_in(&domain, census.object()));
                    let _ = handle.retire(cell.take().expect("it is full"));
                }
                chest.push(Box::new(handle));
                Box::new(background)
            }
            _ => {
                let table: Table<u64, Object> = Table::new_in(&domain);
                for key in 0..random.below(30) as u64 {
                    drop(table.insert(key % 10, census.object()).expect("it grows"));
                }
                Box::new(table)
            }
        };
        chest.push(item);
    }
    chest
}
