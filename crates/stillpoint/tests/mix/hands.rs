//! What one thread of a round owns, and what it does as a writer.

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::wait::GracePeriod;
use stillpoint::rcu::{RcuCell, Reclaimer, RetireHandle, Retired};

use crate::census::Object;
use crate::random::Random;
use crate::world::{Node, Pooled, World, CELLS, KEYS, SLOTS};

/// Every wait has this limit: the thread may be waiting for itself.
const SHORT: Duration = Duration::from_micros(100);
const MANY: usize = 6;

pub(crate) struct Hands {
    nodes: Vec<Retired<Node>>,
    objects: Vec<Retired<Object>>,
    reclaimers: Vec<Reclaimer>,
    futures: Vec<Pin<Box<GracePeriod>>>,
    handles: Vec<RetireHandle>,
    pooled: Vec<NonNull<Pooled>>,
}

impl Hands {
    pub(crate) fn new(handle: RetireHandle) -> Self {
        Self {
            nodes: Vec::new(),
            objects: Vec::new(),
            reclaimers: Vec::new(),
            futures: Vec::new(),
            handles: vec![handle],
            pooled: Vec::new(),
        }
    }

    /// Makes one action of a writer. It does not wait for long, whatever the thread holds.
    pub(crate) fn write(&mut self, world: &World, random: &mut Random) {
        match random.below(16) {
            0..3 => {
                let new = (random.below(8) > 0).then(|| Box::new(world.node(random)));
                if let Some(old) = world.cells[random.below(CELLS)].swap(new) {
                    old.object.verify();
                    put_away(old, &mut self.nodes, &mut self.reclaimers, &self.handles, random);
                }
            }
            3..6 => {
                let new = (random.below(8) > 0).then(|| Box::new(world.census.object()));
                if let Some(old) = world.array.swap(random.below(SLOTS), new) {
                    old.verify();
                    put_away(old, &mut self.objects, &mut self.reclaimers, &self.handles, random);
                }
            }
            6 | 7 => self.change_table(world, random),
            8 => self.retire_pooled(world, random),
            9..12 => self.reclaim(world, random),
            12 | 13 => self.await_grace(world, random),
            14 => {
                // The function must not have the domain: an object that waits in a domain would keep that alive.
                let cell = RcuCell::new_in(&world.domain, world.census.object());
                let object = world.census.object();
                let retires_in_turn = move || drop(cell.replace(object));
                if let Some(reclaimer) = self.reclaimer(world, random) {
                    reclaimer.defer(retires_in_turn);
                } else {
                    self.handles[0].defer(retires_in_turn);
                }
            }
            _ => {
                let _ = world.domain.synchronize_timeout(SHORT);
                let stats = world.domain.stats();
                assert!(
                    stats.freed <= stats.retired + stats.pending,
                    "more were freed than retired: {stats:?}"
                );
            }
        }
    }

    /// Objects that no reclaimer takes are kept for another try, since readers may hold them.
    fn retire_pooled(&mut self, world: &World, random: &mut Random) {
        if let Some(old) = world.relink(random.below(4) > 0) {
            old.verify();
            self.pooled.push(old.into_raw());
        }
        let waiting = std::mem::take(&mut self.pooled);
        for object in waiting {
            // SAFETY: the address came from `into_raw`, and this thread has unlinked it.
            let object = unsafe { world.pool.from_raw(object.as_ptr()) }.expect("it is of this pool");
            let refused = match self.reclaimer(world, random) {
                Some(reclaimer) => world.pool.retire(object, reclaimer).err(),
                None => Some(object),
            };
            self.pooled.extend(refused.map(|object| object.into_raw()));
        }
    }

    fn reclaimer(&mut self, world: &World, random: &mut Random) -> Option<&mut Reclaimer> {
        if self.reclaimers.len() < MANY && random.below(4) == 0 {
            let policy = [WhenFull::HandBack, WhenFull::Wait(SHORT), WhenFull::Reclaim][random.below(3)];
            let builder =
                world.domain.reclaimer_builder().max_pending(1 + random.below(50)).when_full(policy);
            let interval = if random.below(2) == 0 { Duration::ZERO } else { SHORT };
            self.reclaimers.push(builder.fence_interval(interval).build());
        }
        let any = random.below(self.reclaimers.len().max(1));
        self.reclaimers.get_mut(any)
    }

    fn reclaim(&mut self, world: &World, random: &mut Random) {
        match random.below(8) {
            0 if !self.reclaimers.is_empty() => {
                // The reclaimer's objects are left to the domain.
                drop(self.reclaimers.swap_remove(random.below(self.reclaimers.len())));
            }
            1 => self.nodes.truncate(random.below(4)),
            2 => drop(self.objects.drain(..self.objects.len() / 2)),
            3 => {
                if let Some(reclaimer) = self.reclaimer(world, random) {
                    let _ = reclaimer.flush_timeout(SHORT);
                }
            }
            4 if self.handles.len() < MANY => self.handles.extend(self.handles.last().cloned()),
            5 if self.handles.len() > 1 => {
                drop(self.handles.swap_remove(random.below(self.handles.len())));
            }
            _ => {
                let limit = 1 + random.below(20);
                if let Some(reclaimer) = self.reclaimer(world, random) {
                    assert!(reclaimer.poll_at_most(limit) <= limit);
                }
            }
        }
    }

    fn await_grace(&mut self, world: &World, random: &mut Random) {
        if self.futures.len() < MANY && random.below(2) == 0 {
            self.futures.push(Box::pin(world.domain.grace_period(world.domain.start())));
        }
        let mut context = Context::from_waker(Waker::noop());
        self.futures.retain_mut(|future| match random.below(4) {
            0 => false,
            1 => true,
            _ => future.as_mut().poll(&mut context) != Poll::Ready(Ok(())),
        });
    }

    fn change_table(&mut self, world: &World, random: &mut Random) {
        let key = random.below(KEYS) as u64;
        match random.below(20) {
            0 => world.table.clear(),
            1 => _ = world.table.reserve(random.below(100)),
            2 => _ = world.table.poll(),
            3..12 => {
                if let Some(old) = world.table.insert(key, world.census.object()).expect("it grows") {
                    old.verify();
                }
            }
            _ => {
                let Some(old) = world.table.remove(&key) else { return };
                old.verify();
                if let Some(reclaimer) = self.reclaimer(world, random) {
                    if let Err(old) = old.retire_to(reclaimer) {
                        old.verify();
                    }
                }
            }
        }
    }
}

/// Disposes of an unlinked object in one of the possible ways.
fn put_away<T: Send + Sync + 'static>(
    old: Retired<T>,
    held: &mut Vec<Retired<T>>,
    reclaimers: &mut [Reclaimer],
    handles: &[RetireHandle],
    random: &mut Random,
) {
    let (any, handle) = (random.below(reclaimers.len().max(1)), random.below(handles.len()));
    let back = match random.below(12) {
        0 => Some(old),
        1 => old.try_free().err(),
        2 => old.try_into_box().err(),
        3 => old.free_timeout(SHORT).err().map(|error| error.into_inner()),
        4 | 5 => handles[handle].retire_timeout(old, SHORT).err().map(|error| error.into_inner()),
        6 => handles[handle].retire(old).err().map(|error| error.into_inner()),
        7 => {
            held.push(old);
            None
        }
        _ => match reclaimers.get_mut(any) {
            Some(reclaimer) => {
                let back = reclaimer.retire(old).err().map(|error| error.into_inner());
                reclaimer.poll_at_most(1 + random.below(20));
                back
            }
            None => Some(old),
        },
    };
    if let (Some(back), true) = (back, held.len() < MANY && random.below(2) == 0) {
        held.push(back);
    }
}
