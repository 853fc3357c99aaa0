//! What the structures need from a scheme of reclamation, over the documented interfaces of two crates.

use std::array;
use std::sync::atomic::{AtomicPtr, Ordering, fence};

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use haphazard::{Domain, HazardPointer};

/// The bit of a link that marks its node as removed.
pub(super) const MARK: usize = 1;

/// The address in a link.
#[inline(always)]
pub(super) fn address<N>(link: *mut N) -> *mut N {
    link.map_addr(|link| link & !MARK)
}

/// A scheme, to which nodes are retired.
pub(super) trait Scheme: Default + Send + Sync + 'static {
    /// Whether a walk may pass over removed nodes, because a region keeps all of them.
    const KEEPS_ALL: bool;
    type Thread<'s>: Thread;

    fn thread(&self) -> Self::Thread<'_>;
}

/// The state of a thread while it uses a structure.
pub(super) trait Thread {
    type Region<'t>: Region
    where
        Self: 't;

    fn enter(&mut self) -> Self::Region<'_>;
}

/// The state of a thread during a call.
pub(super) trait Region {
    /// Loads a link. The node stays valid until the region ends, or until the next load with the same `place` if that is earlier. If
    /// the scheme keeps nodes one by one, this holds only if the node was linked at the moment of the load.
    fn load<N>(&mut self, place: usize, link: &AtomicPtr<N>) -> *mut N;

    /// Retires a node, which is freed when no region keeps it.
    ///
    /// # Safety
    /// The node came from a box, was unlinked by the caller, and is retired once.
    unsafe fn retire<N: Send + 'static>(&mut self, node: *mut N);
}

/// crossbeam-epoch.
#[derive(Default)]
pub(super) struct Epoch(Collector);

impl Scheme for Epoch {
    const KEEPS_ALL: bool = true;
    type Thread<'s> = LocalHandle;

    fn thread(&self) -> LocalHandle {
        self.0.register()
    }
}

impl Thread for LocalHandle {
    type Region<'t> = Guard;

    #[inline(always)]
    fn enter(&mut self) -> Guard {
        self.pin()
    }
}

impl Region for Guard {
    #[inline(always)]
    fn load<N>(&mut self, _place: usize, link: &AtomicPtr<N>) -> *mut N {
        // Acquire: pairs with the releases by which links are set.
        link.load(Ordering::Acquire)
    }

    #[inline(always)]
    unsafe fn retire<N: Send + 'static>(&mut self, node: *mut N) {
        // SAFETY: the function is deferred after the unlink, so it runs after every pin that can have seen the node. Any thread may free
        // the node, and the caller promises that it came from a box and is retired once.
        unsafe { self.defer_unchecked(move || drop(Box::from_raw(node))) };
    }
}

/// Marks the hazard pointers and domains of this file.
#[non_exhaustive]
pub(super) struct Family;

/// haphazard, with `PLACES` hazard pointers for each thread.
pub(super) struct Hazards<const PLACES: usize>(Domain<Family>);

impl<const PLACES: usize> Default for Hazards<PLACES> {
    fn default() -> Self {
        Self(Domain::new(&Family))
    }
}

/// Hazard pointers are kept from call to call, as the crate advises.
pub(super) struct HazardThread<'s, const PLACES: usize> {
    domain: &'s Domain<Family>,
    hazards: [HazardPointer<'s, Family>; PLACES],
}

impl<const PLACES: usize> Scheme for Hazards<PLACES> {
    const KEEPS_ALL: bool = false;
    type Thread<'s> = HazardThread<'s, PLACES>;

    fn thread(&self) -> HazardThread<'_, PLACES> {
        HazardThread { domain: &self.0, hazards: array::from_fn(|_| HazardPointer::new_in_domain(&self.0)) }
    }
}

impl<'s, const PLACES: usize> Thread for HazardThread<'s, PLACES> {
    type Region<'t>
        = HazardRegion<'t, 's, PLACES>
    where
        Self: 't;

    #[inline(always)]
    fn enter(&mut self) -> HazardRegion<'_, 's, PLACES> {
        HazardRegion(self)
    }
}

pub(super) struct HazardRegion<'t, 's, const PLACES: usize>(&'t mut HazardThread<'s, PLACES>);

impl<const PLACES: usize> Region for HazardRegion<'_, '_, PLACES> {
    /// As the crate's `try_protect_ptr`, which does not know marks. Here the hazard pointer gets the address without the mark, and the
    /// comparison includes the mark.
    #[inline(always)]
    fn load<N>(&mut self, place: usize, link: &AtomicPtr<N>) -> *mut N {
        // Relaxed: this address is not followed before it is loaded again.
        let mut word = link.load(Ordering::Relaxed);
        loop {
            if address(word).is_null() {
                return word;
            }
            self.0.hazards[place].protect_raw(address(word));
            // SeqCst: pairs with the fences of the crate's reclamation.
            fence(Ordering::SeqCst);
            // Acquire: pairs with the releases by which links are set.
            let now = link.load(Ordering::Acquire);
            if now == word {
                return word;
            }
            word = now;
        }
    }

    #[inline(always)]
    unsafe fn retire<N: Send + 'static>(&mut self, node: *mut N) {
        // SAFETY: the caller's promise. A structure is dropped before the domain in which its nodes are retired.
        unsafe { self.0.domain.retire_ptr::<N, Box<N>>(node) };
    }
}

impl<const PLACES: usize> Drop for HazardRegion<'_, '_, PLACES> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.hazards.iter_mut().for_each(HazardPointer::reset_protection);
    }
}
