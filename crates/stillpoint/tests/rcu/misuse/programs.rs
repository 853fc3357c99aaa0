//! Random programs of one thread, which use everything in any order. Whatever a reader holds stays alive.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, Guard, Protected, QsbrReader, RcuArray, Reader, Reclaimer, Retired};

use crate::eager;
use crate::random::Random;

const CELLS: usize = 4;
const STEPS: usize = 600;

/// An object that leaves a note when it is freed.
struct Noted {
    number: usize,
    freed: Arc<[AtomicBool]>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        // Relaxed, here and below: a program has one thread.
        assert!(!self.freed[self.number].swap(true, Ordering::Relaxed), "freed twice");
    }
}

/// Takes a random element out, if there is one.
fn take<T>(random: &mut Random, from: &mut Vec<T>) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(random.below(from.len())))
}

/// What a program holds, with the numbers of the objects that must therefore be alive.
struct Program<'a> {
    random: Random,
    array: &'a RcuArray<Noted>,
    readers: &'a [Reader],
    freed: &'a Arc<[AtomicBool]>,
    made: usize,
    guards: Vec<(Guard<'a>, HashSet<usize>)>,
    protected: Vec<Protected<'a, Noted>>,
    online: Vec<(QsbrReader, HashSet<usize>)>,
    retired: Vec<Retired<Noted>>,
    reclaimers: Vec<Reclaimer>,
}

impl Program<'_> {
    fn object(&mut self) -> Box<Noted> {
        self.made += 1;
        Box::new(Noted { number: self.made - 1, freed: Arc::clone(self.freed) })
    }

    fn step(&mut self, domain: &Domain) {
        let cell = self.random.below(CELLS);
        let reader = &self.readers[self.random.below(self.readers.len())];
        match self.random.below(14) {
            0 if self.guards.len() < 6 => self.guards.push((reader.pin(), HashSet::new())),
            1 => drop(take(&mut self.random, &mut self.guards)),
            2 => {
                for (guard, seen) in &mut self.guards {
                    seen.extend(self.array.load(cell, guard).map(|object| object.number));
                }
            }
            3 if self.protected.len() < 20 => self.protected.extend(self.array.protect(cell, reader)),
            4 => drop(take(&mut self.random, &mut self.protected)),
            5 if self.online.len() < 2 => self.online.push((domain.qsbr_reader(), HashSet::new())),
            6 => drop(take(&mut self.random, &mut self.online)),
            7 => {
                for (reader, seen) in &mut self.online {
                    seen.extend(self.array.load(cell, reader).map(|object| object.number));
                }
            }
            8 => {
                for (reader, seen) in &mut self.online {
                    seen.clear();
                    reader.quiescent();
                }
            }
            9 | 10 => {
                let new = (self.random.below(4) > 0).then(|| self.object());
                self.retired.extend(self.array.swap(cell, new));
            }
            11 => self.let_go(),
            12 => {
                let reclaimer = self.random.below(self.reclaimers.len());
                let limit = self.random.below(4);
                self.reclaimers[reclaimer].poll_at_most(if limit == 0 { usize::MAX } else { limit });
            }
            13 if self.random.below(10) == 0 => {
                let reclaimer = self.random.below(self.reclaimers.len());
                self.reclaimers[reclaimer] = eager(domain);
            }
            _ => {}
        }
    }

    /// Uses a retirement in one of the possible ways.
    fn let_go(&mut self) {
        let Some(old) = take(&mut self.random, &mut self.retired) else { return };
        let reclaimer = self.random.below(self.reclaimers.len());
        match self.random.below(4) {
            0 => drop(old),
            1 => self.retired.extend(old.try_free().err()),
            2 => self.retired.extend(old.try_into_box().err()),
            _ => self.reclaimers[reclaimer].retire(old).expect("there is room"),
        }
    }

    fn verify(&self) {
        let under_guards = self.guards.iter().flat_map(|(_, seen)| seen);
        let online = self.online.iter().flat_map(|(_, seen)| seen);
        let protected = self.protected.iter().map(|object| &object.number);
        let retired = self.retired.iter().map(|object| &object.number);
        for &number in under_guards.chain(online).chain(protected).chain(retired) {
            assert!(!self.freed[number].load(Ordering::Relaxed), "object {number} was freed too early");
        }
    }
}

fn run(seed: u64, mode: Mode) {
    let freed: Arc<[AtomicBool]> = (0..STEPS + CELLS).map(|_| AtomicBool::new(false)).collect();
    let domain = Domain::builder().fence(mode).build().expect("the mode was probed");
    let made = {
        let array = RcuArray::new_in(&domain, CELLS, |_| None);
        let readers: Vec<_> = (0..3).map(|_| domain.reader()).collect();
        let mut program = Program {
            random: Random::new(seed),
            array: &array,
            readers: &readers,
            freed: &freed,
            made: 0,
            guards: Vec::new(),
            protected: Vec::new(),
            online: Vec::new(),
            retired: Vec::new(),
            reclaimers: vec![eager(&domain), eager(&domain)],
        };
        for _ in 0..STEPS {
            program.step(&domain);
            program.verify();
        }
        program.made
    };
    let mut reclaimer = eager(&domain);
    while reclaimer.poll() > 0 {}
    let alive = (0..made).filter(|&number| !freed[number].load(Ordering::Relaxed)).count();
    assert_eq!(alive, 0, "everything is freed in the end");
    assert_eq!(domain.stats().pending, 0);
}

#[test]
fn no_program_frees_what_it_holds() {
    let programs = if cfg!(miri) { 2 } else { 300 };
    for seed in 1..=programs {
        run(seed, Mode::best());
        run(seed, Mode::Symmetric);
    }
}
