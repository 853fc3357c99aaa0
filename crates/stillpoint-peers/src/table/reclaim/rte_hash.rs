//! `rte_hash` as a contender of the experiment `reclaim`.

use std::ffi::{CString, c_char};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::{hint, thread};

use crate::c_functions::opaque;
use crate::native::dpdk::raw::{Qsbr, RawQsbr};
use crate::native::{RawElement, RawJob};
use crate::table::ThreadNumber;
use crate::{Contender, Element, Named, ReadJob, ReadOutcome, Recipe, Writer, free_element};

opaque! {
    struct RawMap;
}

unsafe extern "C" {
    fn stillpoint_map_new(
        name: *const c_char,
        entries: u32,
        readers: u32,
        defer_queue: bool,
        two_threads: bool,
        free_element: unsafe extern "C" fn(*mut RawElement),
    ) -> *mut RawMap;
    fn stillpoint_map_free(map: *mut RawMap);
    fn stillpoint_map_qsbr(map: *mut RawMap) -> NonNull<RawQsbr>;
    fn stillpoint_map_freed(map: *mut RawMap) -> u64;
    fn stillpoint_map_add(map: *mut RawMap, key: u64, element: *mut RawElement) -> bool;
    fn stillpoint_map_find(map: *mut RawMap, key: u64) -> *mut RawElement;
    fn stillpoint_map_delete(map: *mut RawMap, key: u64) -> i32;
    fn stillpoint_map_free_position(map: *mut RawMap, position: i32);
    fn stillpoint_map_read(map: *mut RawMap, id: u32, job: *const RawJob<'_>) -> ReadOutcome;
}

/// `dpdk/rcu` frees through `rte_hash_rcu_qsbr_add` at later deletes; the other two free through the writer's queue.
pub(super) const NAMES: [&str; 3] = ["dpdk/rcu", "dpdk/rcu+poll", "dpdk/rcu+background"];

/// The contenders that are wanted, each over its own table, with lock-free readers.
pub(super) fn contenders(
    wanted: impl Fn(&str) -> bool,
    elements: usize,
    recipe: Recipe,
    max_readers: usize,
) -> Result<Vec<Named>, String> {
    let wanted = (0..NAMES.len()).filter(|&kind| wanted(NAMES[kind]));
    let make = |kind: usize| -> Result<Named, String> {
        Ok((NAMES[kind], Box::new(Map::new(kind, elements, recipe, max_readers)?)))
    };
    wanted.map(make).collect()
}

/// [`free_element`], with the type of a callback.
///
/// # Safety
/// As for [`free_element`].
unsafe extern "C" fn free_raw(element: *mut RawElement) {
    // SAFETY: the element may be freed, by the caller's promise.
    unsafe { free_element(element.cast()) };
}

/// Frees deleted elements during later deletes, through the table's own defer queue.
const AT_DELETE: usize = 0;
/// Frees them on a second thread.
const IN_BACKGROUND: usize = 2;

struct Map {
    raw: NonNull<RawMap>,
    kind: usize,
    elements: usize,
    recipe: Recipe,
    qsbr: Qsbr,
    has_writer: AtomicBool,
    /// The queue from the writer to the thread that frees; unused with a defer queue.
    queue: Sender<Pending>,
    waiting: Mutex<Waiting>,
    /// The number of elements freed through the queue.
    freed: AtomicU64,
}

/// The elements that wait to be freed, oldest first, since tokens only grow.
struct Waiting {
    oldest: Option<Pending>,
    others: Receiver<Pending>,
}

// SAFETY: the table is for one writer and many readers; `writer` ensures that there is one.
unsafe impl Send for Map {}
// SAFETY: many readers may share the table, and `writer` ensures that there is one writer.
unsafe impl Sync for Map {}

impl Map {
    fn new(kind: usize, elements: usize, recipe: Recipe, readers: usize) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let no_room = || "no memory for rte_hash: reserve more huge pages in vm.nr_hugepages".to_owned();
        // Relaxed: the number only has to be unique.
        let name = format!("reclaim{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("no zero");
        let spare = elements / 8 + 1024;
        let entries = u32::try_from(elements + spare).map_err(|_| "rte_hash counts in 32 bits".to_owned())?;
        let readers = readers.max(1);
        // SAFETY: the name ends with a zero, and the table copies it; `free_raw` frees what `add` puts into the table.
        let raw = unsafe {
            let (defer_queue, two_threads) = (kind == AT_DELETE, kind == IN_BACKGROUND);
            stillpoint_map_new(name.as_ptr(), entries, readers as u32, defer_queue, two_threads, free_raw)
        };
        let (queue, others) = channel();
        let raw = NonNull::new(raw).ok_or_else(no_room)?;
        // SAFETY: a new map, whose variable lives as long as the map.
        let qsbr = unsafe { Qsbr::of(stillpoint_map_qsbr(raw.as_ptr()), readers) };
        let map = Self {
            raw,
            qsbr,
            kind,
            elements,
            recipe,
            has_writer: AtomicBool::new(false),
            queue,
            waiting: Mutex::new(Waiting { oldest: None, others }),
            freed: AtomicU64::new(0),
        };
        let _number = ThreadNumber::take();
        let all = (0..elements as u64).all(|key| map.add(key));
        all.then_some(map).ok_or_else(no_room)
    }

    fn raw(&self) -> *mut RawMap {
        self.raw.as_ptr()
    }

    fn add(&self, key: u64) -> bool {
        self.link(key, Box::new(self.recipe.element(key))).is_ok()
    }

    /// Links the element, or hands it back if there is no room.
    fn link(&self, key: u64, element: Box<Element>) -> Result<(), Box<Element>> {
        let element = Box::into_raw(element);
        // SAFETY: the caller is the only writer, or there is none yet.
        if unsafe { stillpoint_map_add(self.raw(), key, element.cast()) } {
            Ok(())
        } else {
            // SAFETY: `element` came from a box, and was not published.
            Err(unsafe { Box::from_raw(element) })
        }
    }

    /// Frees the oldest element that waits, if its token is complete. The calling thread must have one of DPDK's numbers.
    fn step(&self, waiting: &mut Waiting) -> bool {
        let Some(oldest) = waiting.oldest.take().or_else(|| waiting.others.try_recv().ok()) else {
            return false;
        };
        if !self.qsbr.is_over(oldest.token) {
            waiting.oldest = Some(oldest);
            return false;
        }
        // SAFETY: every reader has reported a quiescent state since the deletion. Only one thread gives positions back: the only writer,
        // or another thread if the table was made for two threads.
        unsafe {
            stillpoint_map_free_position(self.raw(), oldest.position);
            free_element(oldest.element);
        }
        // Release pairs with the acquire load in `MapWriter::freed`.
        self.freed.fetch_add(1, Ordering::Release);
        true
    }

    /// Frees what is ready, unless another thread is doing so.
    fn free_ready(&self) {
        if let Ok(mut waiting) = self.waiting.try_lock() {
            while self.step(&mut waiting) {}
        }
    }
}

impl Contender for Map {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let reader = self.qsbr.reader(job.index);
        ready();
        let job = RawJob::without_slots(self.elements, job);
        // SAFETY: the id is registered; the job borrows what it points to.
        unsafe { stillpoint_map_read(self.raw(), reader.id, &raw const job) }
    }

    fn background(&self, stop: &AtomicBool) {
        let _number = ThreadNumber::take();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the flag carries no data.
        while !stop.load(Ordering::Relaxed) {
            if !self.step(&mut waiting) {
                hint::spin_loop();
            }
        }
    }

    fn needs_background(&self) -> bool {
        self.kind == IN_BACKGROUND
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        // Acquire pairs with the release in `MapWriter`'s drop.
        assert!(!self.has_writer.swap(true, Ordering::Acquire), "{} has a writer already", NAMES[self.kind]);
        let number = ThreadNumber::take();
        let mut writer = MapWriter { map: self, deletes: 0, freed_before: 0, _number: number };
        writer.freed_before = writer.freed();
        Box::new(writer)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        for key in 0..self.elements as u64 {
            // SAFETY: neither a reader nor a writer is left, because `self` is exclusive; each element is linked once.
            unsafe {
                let element = stillpoint_map_find(self.raw(), key).cast::<Element>();
                if !element.is_null() {
                    free_element(element);
                }
            }
        }
        // SAFETY: no reader and no writer is left, and the elements are freed.
        unsafe { stillpoint_map_free(self.raw()) };
    }
}

struct Pending {
    element: *mut Element,
    position: i32,
    token: u64,
}

// SAFETY: elements are `Send`, and the owner of this value frees the element.
unsafe impl Send for Pending {}

struct MapWriter<'a> {
    map: &'a Map,
    deletes: u64,
    freed_before: u64,
    _number: ThreadNumber,
}

impl MapWriter<'_> {
    /// How many deleted elements were freed since the map was made.
    fn freed(&self) -> u64 {
        if self.map.kind == AT_DELETE {
            // SAFETY: the caller is the only writer.
            return unsafe { stillpoint_map_freed(self.map.raw()) };
        }
        // Acquire pairs with the release in `Map::step`, which counts after its free.
        self.map.freed.load(Ordering::Acquire)
    }

    /// The defer queue frees only at deletes: this adds and deletes a spare key without an element, which no reader looks up.
    fn press(&self) {
        let spare = self.map.elements as u64;
        // SAFETY: the caller is the only writer; the data of the spare key is null.
        unsafe {
            if stillpoint_map_add(self.map.raw(), spare, std::ptr::null_mut()) {
                stillpoint_map_delete(self.map.raw(), spare);
            }
        }
    }

    fn free_some(&self) {
        match self.map.kind {
            AT_DELETE => self.press(),
            _ => self.map.free_ready(),
        }
    }

    /// Deletes the element of `key`, and hands it to the thread or the queue that frees it.
    fn delete(&mut self, key: u64) {
        let raw = self.map.raw();
        // SAFETY: the caller is the only writer, so the element stays in the table until it is deleted below.
        let element = unsafe { stillpoint_map_find(raw, key) }.cast::<Element>();
        if element.is_null() {
            return;
        }
        if self.map.kind == AT_DELETE {
            // The deletion may free the element, so the element is stamped first.
            // SAFETY: the element is still linked.
            unsafe { (*element).stamp_unlinked() };
        }
        // SAFETY: the caller is the only writer.
        let position = unsafe { stillpoint_map_delete(raw, key) };
        assert!(position >= 0, "rte_hash has lost key {key}");
        self.deletes += 1;
        if self.map.kind != AT_DELETE {
            // SAFETY: the element is freed only in `Map::step`, after it has been sent there.
            unsafe { (*element).stamp_unlinked() };
            let token = self.map.qsbr.token();
            // Sending cannot fail: the receiver lives as long as the map.
            let _ = self.map.queue.send(Pending { element, position, token });
        }
    }

    fn link(&mut self, key: u64, mut element: Box<Element>) {
        while let Err(handed_back) = self.map.link(key, element) {
            element = handed_back;
            self.free_some();
        }
    }
}

impl Writer for MapWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.publish(index, Some(Box::new(self.map.recipe.element(index as u64))));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        self.delete(index as u64);
        if let Some(new) = new {
            self.link(index as u64, new);
        }
    }

    fn poll(&mut self) {
        if self.map.kind != IN_BACKGROUND {
            self.free_some();
        }
    }

    /// Frees the elements that a background thread has not taken, since that thread may have ended.
    fn drain(&mut self) {
        while self.freed() - self.freed_before < self.deletes {
            self.free_some();
            thread::yield_now();
        }
    }
}

impl Drop for MapWriter<'_> {
    fn drop(&mut self) {
        self.drain();
        self.map.has_writer.store(false, Ordering::Release);
    }
}
