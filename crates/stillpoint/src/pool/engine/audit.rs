//! Information, counts, and a check of the whole pool.

use std::ptr::NonNull;

use super::row::{Row, NONE};
use super::{high_water, Core, Plan, Shard};
use crate::pool::audit::{Audit, CacheStats, CallStats, Info, PoolStats};
use stillpoint_sys::bits::bits;
use stillpoint_sys::sync::atomic::Ordering;

/// Where an audit finds a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    /// Whole, in the shared store.
    Store,
    /// Whole, in the list of its owner, or open.
    Whole,
    /// In its owner's list of buckets with both free objects and others, or open.
    Partial,
    /// In no list: it has no free object, or the pool has no memory for it yet.
    Busy,
}

impl Plan {
    /// What [`Core::info`] will say, without the memory.
    pub(crate) fn info(&self) -> Info {
        Info {
            object_bytes: self.size,
            stride: self.geometry.stride(),
            objects_per_block: self.geometry.objects() as usize,
            bucket_bytes: self.geometry.bucket_bytes(),
            shift: self.geometry.colour(),
            max_objects: self.most_buckets as usize * self.geometry.objects() as usize,
            cache: self.cache_limit(),
            high_water: high_water(self.high_water, self.buckets) as usize,
            max_locals: self.locals,
            hardened: self.hardened,
            counts_calls: self.counts_calls,
            memory: Vec::new(),
        }
    }
}

impl Core {
    pub(crate) fn info(&self) -> Info {
        Info { high_water: self.high_water() as usize, memory: self.memory().collect(), ..self.plan.info() }
    }

    /// The number of all objects, and of those that are allocated.
    pub(crate) fn totals(&self) -> (usize, usize) {
        if self.plan.common {
            return self.totals_in_common();
        }
        let of = |shard: &Shard| {
            // Relaxed: a count.
            shard.out.get()
                - shard.strays.load(Ordering::Relaxed)
                - shard.cache.len() as isize
                - shard.deposited.get()
        };
        // Relaxed: a count.
        let sum = self.shards().map(of).sum::<isize>() + self.corrections.load(Ordering::Relaxed);
        // If other threads change the counts meanwhile, the sum may be out of range.
        let capacity = self.extent.buckets() * self.geometry.objects() as usize;
        (capacity, usize::try_from(sum).unwrap_or(0).min(capacity))
    }

    /// From the numbers of all objects and of those that are allocated.
    pub(crate) fn stats(&self, (capacity, in_use): (usize, usize)) -> PoolStats {
        PoolStats { capacity, available: capacity - in_use, in_use, misuses: self.misuses() }
    }

    /// The counts of each shard.
    pub(crate) fn cache_stats(&self) -> Vec<CacheStats> {
        let of = |shard: &Shard| CacheStats {
            drawn: shard.calls.drawn.get(),
            given: shard.calls.given.get(),
            blocks_got: shard.calls.blocks_got.get(),
            blocks_put: shard.calls.blocks_put.get(),
            failures: shard.calls.failures.get(),
            cached: shard.cache.len(),
        };
        self.shards().map(of).collect()
    }

    /// The counts of all shards together, and of what was freed without a handle.
    pub(crate) fn call_stats(&self) -> CallStats {
        let mut sum = CallStats::default();
        for shard in self.shards() {
            let all = &shard.calls.all;
            for (sum, one) in [
                (&mut sum.gets, &all.gets),
                (&mut sum.got, &all.got),
                (&mut sum.failed_gets, &all.failed_gets),
                (&mut sum.not_got, &all.not_got),
                (&mut sum.puts, &all.puts),
                (&mut sum.put, &all.put),
                (&mut sum.failed_puts, &all.failed_puts),
                (&mut sum.block_gets, &all.block_gets),
                (&mut sum.failed_block_gets, &all.failed_block_gets),
                (&mut sum.block_puts, &all.block_puts),
                (&mut sum.failed_block_puts, &all.failed_block_puts),
            ] {
                *sum = sum.wrapping_add(one.get());
            }
        }
        // Relaxed: counts.
        let [objects, blocks] = [0, 1].map(|which| self.dropped[which].load(Ordering::Relaxed));
        for (sum, more) in [(&mut sum.puts, objects), (&mut sum.put, objects), (&mut sum.block_puts, blocks)]
        {
            *sum = sum.wrapping_add(more);
        }
        sum
    }

    /// The first row of each bucket.
    fn buckets(&self) -> impl Iterator<Item = u32> + '_ {
        let rows = self.geometry.rows();
        self.extent.pieces().flat_map(move |piece| {
            (piece.first..piece.first + piece.buckets).map(move |bucket| bucket * rows)
        })
    }

    pub(super) fn rows_of(&self, bucket: u32) -> impl Iterator<Item = (u32, &Row)> {
        (bucket..bucket + self.geometry.rows()).map(|row| (row, &self.rows[row as usize]))
    }

    /// Checks the pool, and returns the first inconsistency as an error. Exact when no thread uses the pool meanwhile.
    pub(crate) fn audit(&self) -> Result<Audit, String> {
        let mut audit = Audit { fill: vec![0; self.geometry.objects() as usize + 1], ..Audit::default() };
        if self.plan.common {
            return self.audit_in_common(audit);
        }
        let mut places = vec![Spot::Busy; self.rows.len()];
        let mut see = |bucket: u32, spot: Spot| -> Result<(), String> {
            let place =
                places.get_mut(bucket as usize).ok_or_else(|| format!("there is no bucket {bucket}"))?;
            match std::mem::replace(place, spot) {
                Spot::Busy => Ok(()),
                before => Err(format!("bucket {bucket} is in two places: {before:?} and {spot:?}")),
            }
        };
        self.store.elements(&self.rows).try_for_each(|bucket| see(bucket, Spot::Store))?;
        for shard in self.shards() {
            for (list, spot) in [(&shard.partial, Spot::Partial), (&shard.whole, Spot::Whole)] {
                let mut next = list.first();
                let mut len = 0;
                while let Some(bucket) = next {
                    see(bucket, spot)?;
                    self.check_owner(bucket, shard.index)?;
                    let after = self.rows[bucket as usize].after.get();
                    next = (after != NONE).then_some(after);
                    len += 1;
                }
                if len != list.len() {
                    return Err(format!(
                        "a list of shard {} has {len} buckets, not {}",
                        shard.index,
                        list.len()
                    ));
                }
            }
            if let Some(bucket) = shard.open.bucket() {
                see(bucket, if self.is_whole(bucket) { Spot::Whole } else { Spot::Partial })?;
                self.check_owner(bucket, shard.index)?;
            }
            audit.cached += shard.cache.len();
        }
        audit.deposited = self.depot.len();
        let posted = self.posted()?;
        let mut live_objects = 0;
        for bucket in self.buckets() {
            let (live, remote) = self.count(bucket, places[bucket as usize], &posted)?;
            audit.fill[live - remote] += 1;
            live_objects += live - remote;
            audit.on_their_way += remote;
            let free = self.geometry.objects() as usize - live;
            match places[bucket as usize] {
                Spot::Store => audit.buckets_in_store += 1,
                Spot::Whole => audit.buckets_whole += 1,
                Spot::Partial => audit.buckets_partial += 1,
                Spot::Busy => audit.buckets_busy += 1,
            }
            if places[bucket as usize] != Spot::Store {
                audit.held += free;
            }
        }
        let out = live_objects
            .checked_sub(audit.cached + audit.deposited)
            .ok_or("there are more objects in caches and in the depot than out of buckets")?;
        let (capacity, counted) = self.totals();
        if out != counted {
            return Err(format!("{out} objects are out, but {counted} are counted"));
        }
        audit.stats = self.stats((capacity, out));
        Ok(audit)
    }

    fn check_owner(&self, bucket: u32, index: u32) -> Result<(), String> {
        // Relaxed: exact only when no thread uses the pool.
        match self.rows[bucket as usize].owner.load(Ordering::Relaxed) {
            owner if owner == index => Ok(()),
            owner => Err(format!("bucket {bucket} is in a list of shard {index}, but belongs to {owner}")),
        }
    }

    /// For each row, the shard whose inbox it is in.
    fn posted(&self) -> Result<Vec<u32>, String> {
        let mut posted = vec![NONE; self.rows.len()];
        for shard in self.shards() {
            for mut row in shard.lists_of_inbox() {
                while row != NONE {
                    let place =
                        posted.get_mut(row as usize).ok_or_else(|| format!("there is no row {row}"))?;
                    if *place != NONE {
                        return Err(format!("row {row} is in two inboxes, or in one of them twice"));
                    }
                    *place = shard.index;
                    // Relaxed: exact only when no thread uses the inbox.
                    row = self.rows[row as usize].far.behind.load(Ordering::Relaxed);
                }
            }
        }
        Ok(posted)
    }

    /// The number of objects in a bucket that are not free, and the number of those that are on their way back.
    fn count(&self, bucket: u32, spot: Spot, posted: &[u32]) -> Result<(usize, usize), String> {
        let (mut live, mut remote) = (0, 0);
        for (index, row) in self.rows_of(bucket) {
            // Relaxed: exact only when no thread uses the pool.
            let waiting = row.far.remote.load(Ordering::Relaxed);
            if (waiting != 0) != (posted[index as usize] != NONE) {
                return Err(format!(
                    "row {index} has the remote word {waiting:x} and is in inbox {}",
                    posted[index as usize]
                ));
            }
            // Read once: an owner may change it meanwhile, and the sums below use the value checked here.
            let taken = row.live.get();
            if waiting & !taken != 0 {
                return Err(format!("row {index}: objects that are free were freed again"));
            }
            live += taken.count_ones() as usize;
            remote += waiting.count_ones() as usize;
        }
        let row = &self.rows[bucket as usize];
        let (objects, free) = (self.geometry.objects() as usize, row.free.get() as usize);
        let expected = match free {
            _ if free + live != objects => {
                return Err(format!("bucket {bucket} counts {free} free objects and has {live} that are not"))
            }
            0 => Spot::Busy,
            _ if free == objects && spot == Spot::Store => Spot::Store,
            _ if free == objects => Spot::Whole,
            _ => Spot::Partial,
        };
        if spot != expected {
            return Err(format!("bucket {bucket} has {free} of {objects} objects and is in {spot:?}"));
        }
        self.check_rows(bucket)?;
        Ok((live, remote))
    }

    /// Checks that the bucket leads to each of its rows with free objects once.
    fn check_rows(&self, bucket: u32) -> Result<(), String> {
        let some = self.rows_of(bucket).filter(|&(row, _)| !self.is_full(row)).count();
        let mut next = self.rows[bucket as usize].first.get();
        if some > 0 && self.geometry.bucket_of(next) == bucket && self.is_full(next) {
            // It may be open.
            next = self.rows[next as usize].next.get();
        }
        let mut seen = Vec::with_capacity(some);
        while seen.len() < some {
            if self.geometry.bucket_of(next) != bucket || self.is_full(next) {
                return Err(format!("bucket {bucket} leads to row {next}, which has no free objects of it"));
            }
            seen.push(next);
            next = self.rows[next as usize].next.get();
        }
        seen.sort_unstable();
        seen.dedup();
        if seen.len() < some {
            return Err(format!("bucket {bucket} leads to {} of {some} rows with free objects", seen.len()));
        }
        Ok(())
    }

    /// The objects that are allocated.
    ///
    /// # Safety
    /// No other thread uses the pool, except to free objects without a shard.
    pub(crate) unsafe fn out(&self) -> Vec<NonNull<u8>> {
        let mut cached: Vec<*mut u8> = self
            .shards()
            .flat_map(|shard| {
                // SAFETY: no other thread uses the shard, by the caller's promise.
                unsafe { shard.cache.objects() }.to_vec()
            })
            .collect();
        // SAFETY: by the caller's promise, no thread uses the depot.
        cached.extend(unsafe { self.depot.objects() });
        cached.sort_unstable();
        let mut out = Vec::new();
        for bucket in self.buckets() {
            for (index, row) in self.rows_of(bucket) {
                // Relaxed: the caller has synchronized with all threads that used the pool.
                let live = row.live.get() & !row.far.remote.load(Ordering::Relaxed);
                for bit in bits(live) {
                    let object = self.address(index, bit);
                    if cached.binary_search(&object).is_err() {
                        out.extend(NonNull::new(object));
                    }
                }
            }
        }
        out
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::geometry::Geometry;
    use super::super::{Core, Handle, Life, Plan};
    use super::*;
    use stillpoint_sys::linux::region::Want;

    /// A pool of eight buckets of two objects, or of more.
    fn pool(per_bucket: usize) -> Arc<Core> {
        let plan = Plan {
            geometry: Geometry::new(8, 8, Some(8 * per_bucket), 1).expect("a small bucket"),
            size: 8,
            buckets: 8,
            most_buckets: 8,
            step: 0,
            cache: 0,
            common: false,
            high_water: Some(4),
            locals: 2,
            hardened: false,
            counts_calls: false,
            want: Want { reserved: false, transparent: false, small: true, node: None },
        };
        Core::new(plan, Life::default(), None).expect("a little memory")
    }

    /// Makes a pool whose shard has a partial bucket, a whole one, a busy one, and one with an object in the inbox.
    /// More buckets are in the store. Then `damage` damages the pool, and the audit's error must contain `part`.
    #[track_caller]
    fn finds(part: &str, damage: impl FnOnce(&Core, &Shard, [u32; 4])) {
        let core = pool(2);
        // Not dropped: the drop of a handle does not expect a damaged pool.
        let handle = std::mem::ManuallyDrop::new(Handle::new(&core).expect("a shard is free"));
        let row_of = |object: *mut u8| core.place_of(object).expect("an object").row;
        let next = || handle.alloc_block(1).expect("a whole bucket").as_ptr();
        let [broken, whole, busy, sent] = [next(), next(), next(), next()];
        // SAFETY: allocated above, and freed once.
        unsafe { handle.free(broken) }.expect("an object");
        // SAFETY: the block was allocated above, and is freed once.
        unsafe { handle.free_block(whole) }.expect("a block");
        core.free_without_shard(sent);
        let found = core.audit().expect("nothing is wrong yet");
        assert_eq!((found.buckets_whole, found.buckets_partial, found.buckets_busy), (1, 1, 2));
        assert_eq!((found.buckets_in_store, found.on_their_way, found.stats.in_use), (4, 1, 4));
        assert_eq!((found.held, found.fill), (3, vec![5, 2, 1]));
        damage(&core, handle.shard(), [row_of(broken), row_of(whole), row_of(busy), row_of(sent)]);
        let error = core.audit().expect_err("the audit finds the damage");
        assert!(error.contains(part), "'{part}' is not in: {error}");
    }

    #[test]
    fn an_audit_finds_what_is_damaged() {
        fn row(core: &Core, row: u32) -> &Row {
            &core.rows[row as usize]
        }
        finds("is in two places", |core, shard, [_, _, busy, _]| {
            shard.whole.push(&core.rows, busy);
            shard.partial.push(&core.rows, busy);
        });
        finds("is in two places", |core, _, [_, whole, ..]| {
            core.store.give(&core.rows, super::super::store::Chain { first: whole, last: whole, len: 1 });
        });
        finds("but belongs to", |core, _, [broken, ..]| {
            row(core, broken).owner.store(7, Ordering::Relaxed);
        });
        finds("is in Busy", |core, shard, [broken, ..]| shard.partial.remove(&core.rows, broken));
        finds("is in Busy", |core, shard, [_, whole, ..]| shard.whole.remove(&core.rows, whole));
        finds("is in Partial", |core, shard, [_, _, busy, _]| shard.partial.push(&core.rows, busy));
        finds("is in Partial", |core, shard, [_, whole, ..]| {
            shard.whole.remove(&core.rows, whole);
            shard.partial.push(&core.rows, whole);
        });
        finds("a list of shard 0 has", |core, shard, [broken, ..]| {
            shard.partial.push(&core.rows, broken);
            row(core, broken).after.set(NONE);
        });
        finds("counts 0 free objects", |core, _, [broken, ..]| row(core, broken).free.set(0));
        finds("counts 1 free objects", |core, _, [broken, ..]| row(core, broken).live.set(0b11));
        finds("has the remote word 1", |core, _, [_, _, busy, _]| {
            row(core, busy).far.remote.store(1, Ordering::Relaxed);
        });
        finds("has the remote word 0", |core, _, [.., sent]| {
            row(core, sent).far.remote.store(0, Ordering::Relaxed);
        });
        finds("in one of them twice", |core, shard, [.., sent]| shard.leave_rest(&core.rows, sent));
        finds("were freed again", |core, _, [.., sent]| {
            row(core, sent).live.set(0b10);
            row(core, sent).free.set(1);
        });
        finds("which has no free objects of it", |core, _, [broken, _, busy, _]| {
            row(core, broken).first.set(busy);
        });
        finds("but 5 are counted", |_, shard, _| shard.out.set(shard.out.get() + 1));
    }

    /// Such a bucket would lose objects, or give one out twice.
    #[test]
    fn an_audit_finds_a_bucket_of_four_rows_that_leads_to_one_twice_or_not_at_all() {
        // The second row or the third leads to the second: a circle. The first leads to the third.
        for (row, next, part) in [
            (1, 1, "leads to 2 of 4 rows"),
            (2, 1, "leads to 3 of 4 rows"),
            (0, 2, "which has no free objects of it"),
        ] {
            let core = pool(256);
            // Not dropped: the drop of a handle does not expect a damaged pool.
            let handle = std::mem::ManuallyDrop::new(Handle::new(&core).expect("a shard is free"));
            let object = handle.alloc().expect("an object is free").as_ptr();
            let bucket = core.place_of(object).expect("an object").row;
            core.audit().expect("nothing is wrong yet");
            core.rows[bucket as usize + row].next.set(bucket + next);
            let error = core.audit().expect_err("the audit finds the damage");
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
}
