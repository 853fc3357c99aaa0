//! Random calls, compared with a set of the allocated objects.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use proptest::prelude::*;
use stillpoint::pool::audit::CacheStats;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::raw::{RawBlock, RawLocal, RawPool};

#[derive(Debug, Clone)]
enum Step {
    Alloc { thread: usize },
    AllocMany { thread: usize, count: usize },
    AllocBlock { thread: usize },
    Free { thread: usize, which: usize },
    FreeMany { thread: usize, from: usize, count: usize },
    FreeBlock { thread: usize, which: usize },
    Park { thread: usize },
    Restart { thread: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let thread = || 0..3usize;
    let any = || 0..10_000usize;
    // Some are more than half of a large cache.
    let count = || prop_oneof![2 => 0..40usize, 1 => 0..200usize];
    let step = prop_oneof![
        4 => thread().prop_map(|thread| Step::Alloc { thread }),
        3 => (thread(), count()).prop_map(|(thread, count)| Step::AllocMany { thread, count }),
        2 => thread().prop_map(|thread| Step::AllocBlock { thread }),
        4 => (thread(), any()).prop_map(|(thread, which)| Step::Free { thread, which }),
        3 => (thread(), any(), count()).prop_map(|(thread, from, count)| Step::FreeMany { thread, from, count }),
        2 => (thread(), any()).prop_map(|(thread, which)| Step::FreeBlock { thread, which }),
        1 => thread().prop_map(|thread| Step::Park { thread }),
        1 => thread().prop_map(|thread| Step::Restart { thread }),
    ];
    prop::collection::vec(step, 0..120)
}

/// The allocated objects, in the order of their allocation.
#[derive(Default)]
struct Out {
    objects: Vec<NonNull<u8>>,
    blocks: Vec<RawBlock>,
    all: HashSet<NonNull<u8>>,
    /// Objects that were allocated by themselves or with others, not in blocks, less those that were freed so.
    one_by_one: isize,
}

impl Out {
    fn add(&mut self, object: NonNull<u8>) {
        assert!(self.all.insert(object), "an object was allocated twice");
        // SAFETY: 16 bytes, which only this thread has.
        unsafe { object.as_ptr().write_bytes(object.as_ptr().addr() as u8 | 1, 16) };
    }

    fn check(&mut self, object: NonNull<u8>) {
        assert!(self.all.remove(&object));
        // SAFETY: written when it was allocated.
        let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), 16) };
        assert!(bytes.iter().all(|&byte| byte == object.as_ptr().addr() as u8 | 1), "it was overwritten");
    }
}

fn run(step: &Step, locals: &[RawLocal<'_>], out: &mut Out) {
    match *step {
        Step::Alloc { thread } => {
            locals[thread].alloc().into_iter().for_each(|object| {
                out.add(object);
                out.objects.push(object);
                out.one_by_one += 1;
            });
        }
        Step::AllocMany { thread, count } => {
            let mut room = vec![MaybeUninit::uninit(); count];
            if let Ok(objects) = locals[thread].alloc_many(&mut room) {
                objects.iter().for_each(|&object| out.add(object));
                out.objects.extend_from_slice(objects);
                out.one_by_one += objects.len() as isize;
            }
        }
        Step::AllocBlock { thread } => {
            locals[thread].alloc_block().into_iter().for_each(|block| {
                (0..block.len()).for_each(|index| out.add(block.get(index).unwrap()));
                out.blocks.push(block);
            });
        }
        Step::Free { thread, which } if !out.objects.is_empty() => {
            let object = out.objects.swap_remove(which % out.objects.len());
            out.check(object);
            out.one_by_one -= 1;
            // SAFETY: allocated, and freed once.
            unsafe { locals[thread].free(object) }.unwrap();
        }
        Step::FreeMany { thread, from, count } if !out.objects.is_empty() => {
            let from = from % out.objects.len();
            let some: Vec<_> = out.objects.drain(from..out.objects.len().min(from + count)).collect();
            some.iter().for_each(|&object| out.check(object));
            out.one_by_one -= some.len() as isize;
            // SAFETY: allocated, and freed once.
            unsafe { locals[thread].free_many(&some) }.unwrap();
        }
        Step::FreeBlock { thread, which } if !out.blocks.is_empty() => {
            let block = out.blocks.swap_remove(which % out.blocks.len());
            let objects: Vec<_> = (0..block.len()).map(|index| block.get(index).unwrap()).collect();
            objects.iter().for_each(|&object| out.check(object));
            out.one_by_one -= if which % 3 == 2 { 0 } else { objects.len() as isize };
            match which % 3 {
                // SAFETY: allocated, and freed once.
                0 => unsafe { locals[thread].free_many(&objects) }.unwrap(),
                // SAFETY: allocated, and freed once.
                1 => objects.iter().rev().for_each(|&object| unsafe { locals[thread].free(object) }.unwrap()),
                // SAFETY: allocated, and freed once.
                _ => unsafe { locals[thread].free_block(block) }.unwrap(),
            }
        }
        Step::Park { thread } => locals[thread].park(),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn every_call_does_what_a_set_would(
        steps in steps(),
        (size, bucket) in prop_oneof![Just((64, 256)), Just((16, 4096)), Just((200, 4096)), Just((16, 16)), Just((16, 1 << 14))],
        capacity in 1..400usize,
        cache in prop_oneof![Just(0), Just(5), Just(32), Just(64), Just(65)],
        high_water in 0..4u32,
        hardened in prop_oneof![2 => Just(false), 1 => Just(true)],
        grows in any::<bool>(),
    ) {
        let mut builder = RawPool::builder(capacity, size, 8).bucket_bytes(bucket).cache(cache).high_water(high_water);
        builder = builder.hardened(hardened).pages(Pages::Small);
        if grows {
            builder = builder.max_objects(capacity + 50).growth_step(20);
        }
        let mut pool = builder.build().unwrap();
        let mut out = Out::default();
        {
            let mut locals: Vec<_> = (0..3).map(|_| pool.local().unwrap()).collect();
            for step in &steps {
                if let Step::Restart { thread } = *step {
                    locals.remove(thread);
                    locals.insert(thread, pool.local().unwrap());
                }
                run(step, &locals, &mut out);
                let counts = pool.stats();
                prop_assert_eq!(counts.in_use, out.all.len());
                let of = |stats: &CacheStats| stats.drawn.wrapping_sub(stats.given).wrapping_sub(stats.cached) as isize;
                let passed: isize = pool.cache_stats().iter().map(of).sum();
                prop_assert_eq!(passed, out.one_by_one);
            }
            let audit = pool.audit().unwrap();
            prop_assert_eq!(audit.stats.in_use, out.all.len());
        }
        // When all locals have ended, everything that is not allocated is available.
        let left = pool.stats().available;
        let (missing, local) = (pool.info().max_objects - pool.stats().capacity, pool.local().unwrap());
        let rest: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        prop_assert_eq!(rest.len(), left + missing);
        rest.iter().for_each(|&object| out.add(object));
        drop(local);
        prop_assert_eq!(pool.stats().misuses, 0);
        let leaks: HashSet<usize> = pool.leaks().iter().map(|leak| leak.addr().get()).collect();
        prop_assert_eq!(leaks, out.all.iter().map(|object| object.as_ptr().addr()).collect::<HashSet<_>>());
    }
}
