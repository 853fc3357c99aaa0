//! The race between an announcement and a scan: a reader and a writer, each on its own CPU.
//!
//! The reader announces itself and loads at once. The writer unlinks, scans and frees at once. If a fence is missing
//! on either side, the announcement may still be in the reader's store buffer when the scan looks for it, although
//! the load came before the unlink. That window is open for some ten nanoseconds, and hardly ever met by chance. So
//! the reader first fills its store buffer ([`Stores`]), which keeps the window open for one or two hundred nanoseconds.
//! The writer unlinks at random moments of the reader's round. The reader then looks at its object long enough for a
//! writer that has missed the reader to destroy it.

use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, RcuArray, Reclaimer, Retired};
use stillpoint_harness::machine::cpus::run_on;

use crate::arena::{Context, Handle, Maker};
use crate::awaiting::Stores;
use crate::counts::{Hold, Kind, Looks, Runs};
use crate::races::{Body, Ring};
use crate::world::plain;

/// Few cells, in one cache line, so that the reader mostly loads the object that the writer is about to unlink.
const CELLS: usize = 2;
/// The most writers at the same time, if there are CPUs for them.
const MOST_WRITERS: usize = 2;
/// Tries between two looks at the stop flag.
const BATCH: u32 = 64;
/// Longest time between a free and the next unlink, as a power of two of turns of a spinning loop.
const LONGEST_SPIN: u32 = 8;
/// Most stores before an announcement: about what a store buffer holds. More would only delay the announcement.
const MOST_STORES: usize = 60;

/// A race of one reader against one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Litmus {
    pub(super) mode: Mode,
    pub(super) announce: Announce,
    pub(super) free: Free,
}

/// How the reader announces itself, in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announce {
    Pin,
    BoundPin,
    Protect,
    BoundProtect,
    Online,
    BoundOnline,
    BackByPin,
    BackByProtect,
    Register,
}

/// How the writer frees an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Free {
    Try,
    Poll,
}

impl Announce {
    pub(super) fn text(self) -> &'static str {
        const TEXTS: &str =
            "pin|bound pin|protect|bound protect|online|bound online|offline, pin|offline, protect|register";
        TEXTS.split('|').nth(self as usize).unwrap_or_default()
    }
}

impl Free {
    pub(super) fn text(self) -> &'static str {
        ["try_free", "poll"][self as usize]
    }
}

impl Litmus {
    pub(super) fn run(&self, ring: Ring<'_>, rng: &mut Rng) -> Result<Runs, String> {
        let (context, domain) = (ring.context, plain(self.mode)?);
        let mut first = Maker::new(context, MOST_WRITERS);
        let cells = RcuArray::new_in(&domain, CELLS, |_| first.make());
        let opponents = Opponents { litmus: *self, ring, domain, cells };
        let opponents = &opponents;
        // With two CPUs, the reader has one and the writer the other. A second writer needs a third CPU.
        let (own, others) = opponents.ring.sides()?;
        let reads = rng.fork();
        let mut bodies: Vec<Body<'_>> =
            vec![Box::new(move || Runs { tries: opponents.read(own, reads), ..Runs::default() })];
        for (number, &cpu) in others.iter().take(MOST_WRITERS).enumerate() {
            let (maker, writes) = (Maker::new(context, number), rng.fork());
            bodies.push(Box::new(move || Runs {
                over: opponents.write(cpu, maker, writes),
                ..Runs::default()
            }));
        }
        Ok(opponents.ring.run(bodies))
    }
}

struct Opponents<'r> {
    litmus: Litmus,
    ring: Ring<'r>,
    domain: Domain,
    cells: RcuArray<Handle>,
}

impl Opponents<'_> {
    /// Returns the number of tries.
    fn read(&self, cpu: usize, mut rng: Rng) -> u64 {
        // If it is refused, the threads meet less often. The counts show if that is too rarely.
        let _ = run_on(&[cpu]);
        let Self { domain, cells, .. } = self;
        let stores = Stores::new();
        let is_back = matches!(self.litmus.announce, Announce::BackByPin | Announce::BackByProtect);
        match self.litmus.announce {
            Announce::Pin | Announce::BackByPin => {
                let reader = domain.reader();
                self.repeat(&mut rng, Kind::Guard, |watch, fill, cell| {
                    if is_back {
                        reader.offline();
                    }
                    stores.fill(fill);
                    watch.look(cells.load(cell, &reader.pin()));
                })
            }
            Announce::BoundPin => {
                let mut reader = domain.reader();
                let mut bound = cells.bind(&mut reader);
                self.repeat(&mut rng, Kind::Guard, |watch, fill, cell| {
                    stores.fill(fill);
                    watch.look(bound.pin().load(cell));
                })
            }
            Announce::Protect | Announce::BackByProtect => {
                let reader = domain.reader();
                self.repeat(&mut rng, Kind::Protected, |watch, fill, cell| {
                    if is_back {
                        reader.offline();
                    }
                    stores.fill(fill);
                    watch.look(cells.protect(cell, &reader).as_deref());
                })
            }
            Announce::BoundProtect => {
                let mut reader = domain.reader();
                let mut bound = cells.bind(&mut reader);
                self.repeat(&mut rng, Kind::Protected, |watch, fill, cell| {
                    stores.fill(fill);
                    watch.look(bound.protect(cell).as_deref());
                })
            }
            Announce::Online => {
                let mut reader = domain.qsbr_reader();
                self.repeat(&mut rng, Kind::Qsbr, |watch, fill, cell| {
                    reader.offline(|| stores.fill(fill));
                    watch.look(cells.load(cell, &reader));
                })
            }
            Announce::BoundOnline => {
                let mut reader = domain.qsbr_reader();
                let mut bound = cells.bind_qsbr(&mut reader);
                self.repeat(&mut rng, Kind::Qsbr, |watch, fill, cell| {
                    bound.offline(|| stores.fill(fill));
                    watch.look(bound.load(cell));
                })
            }
            Announce::Register => self.repeat(&mut rng, Kind::Qsbr, |watch, _, cell| {
                watch.look(cells.load(cell, &domain.qsbr_reader()));
            }),
        }
    }

    /// Repeats the try with varying delays until stopped.
    fn repeat(
        &self,
        rng: &mut Rng,
        kind: Kind,
        mut attempt: impl FnMut(&mut Watch<'_>, usize, usize),
    ) -> u64 {
        let mut seen = Looks::default();
        let mut tries = 0;
        let hold = Hold { kind, mode: self.litmus.mode };
        while !self.ring.is_stopped() {
            // A poll frees an object only after a heavy fence, which the reader has to outlast.
            let patient = self.litmus.free == Free::Poll && rng.bool();
            let magnitude = if patient { rng.u32(12..15) } else { rng.u32(0..12) };
            let looks = rng.u32(0..1 << magnitude);
            let mut watch = Watch { context: self.ring.context, hold, seen: &mut seen, looks };
            let fill = if rng.u32(0..4) == 0 { 0 } else { rng.usize(0..MOST_STORES) };
            for number in 0..BATCH {
                attempt(&mut watch, fill, number as usize % CELLS);
            }
            tries += u64::from(BATCH);
        }
        tries
    }

    /// Returns the number of objects freed.
    fn write(&self, cpu: usize, mut maker: Maker, mut rng: Rng) -> u64 {
        // If it is refused: see `read`.
        let _ = run_on(&[cpu]);
        let mut frees = 0;
        let mut reclaimer = self.domain.reclaimer_builder().batch(1).fence_interval(Duration::ZERO).build();
        while !self.ring.is_stopped() {
            let longest = 1 << rng.u32(0..=LONGEST_SPIN);
            for number in 0..BATCH {
                // A varying delay, to meet any moment of the reader's round: otherwise the two would run in step.
                (0..rng.u32(0..longest)).for_each(|_| std::hint::spin_loop());
                let Some(new) = maker.make() else {
                    frees += reclaimer.poll() as u64;
                    continue;
                };
                let Some(old) = self.cells.swap(number as usize % CELLS, Some(new)) else { continue };
                match self.litmus.free {
                    Free::Try => frees += self.free(&mut reclaimer, old),
                    Free::Poll => frees += poll(&mut reclaimer, old),
                }
            }
        }
        frees
    }

    /// Frees one object as soon as it can be, unless the reader is preempted.
    fn free(&self, reclaimer: &mut Reclaimer, mut old: Retired<Handle>) -> u64 {
        for _ in 0..1000 {
            match old.try_free() {
                Ok(()) => return 1,
                Err(retired) => old = retired,
            }
        }
        poll(reclaimer, old)
    }
}

fn poll(reclaimer: &mut Reclaimer, old: Retired<Handle>) -> u64 {
    // If the reclaimer is full, the object is left to the domain.
    drop(reclaimer.retire(old));
    reclaimer.poll() as u64
}

/// How a reader looks at an object.
struct Watch<'r> {
    context: &'static Context,
    hold: Hold,
    seen: &'r mut Looks,
    looks: u32,
}

impl Watch<'_> {
    #[inline]
    fn look(&mut self, object: Option<&Handle>) {
        self.context.watch(object, self.hold, self.seen, self.looks);
    }
}
