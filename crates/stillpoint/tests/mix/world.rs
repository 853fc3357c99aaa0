//! What all threads of a round share.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use stillpoint::fence::Mode;
use stillpoint::pool::memory::Pages;
use stillpoint::pool::{Objects, Pool};
use stillpoint::rcu::{Domain, RcuArray, RcuCell};
use stillpoint::table::Table;

use crate::census::{Census, Object};
use crate::random::Random;

pub(crate) const CELLS: usize = 4;
pub(crate) const SLOTS: usize = 8;
pub(crate) const KEYS: usize = 40;
const POOLED: usize = 16;

/// An object with a cell in it.
pub(crate) struct Node {
    pub(crate) object: Object,
    pub(crate) next: RcuCell<Node>,
}

/// An object of the pool: linked, or allocated and not linked yet.
pub(crate) struct Pooled(AtomicU64);

const LINKED: u64 = 7;
const FRESH: u64 = 13;

impl Pooled {
    pub(crate) fn verify(&self) {
        // Relaxed: only the pool's `reset` writes another value, and must not while the object is read.
        assert_eq!(self.0.load(Ordering::Relaxed), LINKED, "allocated again while it is read");
    }
}

pub(crate) struct World {
    pub(crate) cells: [RcuCell<Node>; CELLS],
    pub(crate) array: RcuArray<Object>,
    pub(crate) table: Table<u64, Object>,
    pub(crate) pooled: AtomicPtr<Pooled>,
    pub(crate) pool: Pool<Pooled>,
    pub(crate) domain: Domain,
    pub(crate) census: Census,
}

impl World {
    pub(crate) fn new(random: &mut Random, mode: Mode) -> Self {
        let mut builder = Domain::builder().fence(mode);
        if random.below(2) == 0 {
            builder = builder.max_pending(1 + random.below(200));
        }
        let domain = builder.build().expect("the mode was probed");
        let census = Census::default();
        let table = Table::builder_in(&domain).capacity(random.below(20)).build().expect("there is memory");
        let objects = Objects::new(|| Pooled(AtomicU64::new(FRESH)));
        let objects = objects.reset(|pooled: &mut Pooled| *pooled.0.get_mut() = FRESH);
        let pool = Pool::builder(POOLED, objects).pages(Pages::Small).build().expect("there is memory");
        Self {
            cells: std::array::from_fn(|_| RcuCell::new_in(&domain, node(&domain, &census, random))),
            array: RcuArray::new_in(&domain, SLOTS, |_| Some(Box::new(census.object()))),
            table,
            pooled: AtomicPtr::default(),
            pool,
            domain,
            census,
        }
    }

    pub(crate) fn node(&self, random: &mut Random) -> Node {
        node(&self.domain, &self.census, random)
    }

    /// Links another object of the pool, or none, and returns the one that was linked.
    pub(crate) fn relink(&self, link: bool) -> Option<stillpoint::pool::Obj<'_, Pooled>> {
        let new = match self.pool.local() {
            Ok(local) if link => local.alloc().map(|mut object| {
                *object.0.get_mut() = LINKED;
                object.into_raw().as_ptr()
            }),
            _ => None,
        };
        // AcqRel: pairs with itself, and with the acquire load of readers.
        let old = self.pooled.swap(new.unwrap_or_default(), Ordering::AcqRel);
        // SAFETY: the address came from `into_raw`, and this thread has unlinked it.
        (!old.is_null()).then(|| unsafe { self.pool.from_raw(old) }.expect("it is of this pool"))
    }
}

/// A node, some of which have other nodes in their cells.
fn node(domain: &Domain, census: &Census, random: &mut Random) -> Node {
    let next = if random.below(3) == 0 {
        RcuCell::new_in(domain, node(domain, census, random))
    } else {
        RcuCell::empty_in(domain)
    };
    Node { object: census.object(), next }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.relink(false));
    }
}
