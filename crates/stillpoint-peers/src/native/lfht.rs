//! liburcu's hash table `cds_lfht`, with a bucket for each element. It is never resized.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::urcu::{Field, Flavour, Functions, KINDS, Membership, Urcu};
use super::{RawJob, urcu_sync};
use crate::c_functions::opaque;
use crate::{Element, Named, ReadOutcome, Recipe};

opaque! {
    /// `struct cds_lfht`.
    pub(super) struct RawTable;
    /// A [`Linked`] as C code sees it.
    pub(super) struct RawLinked;
}

/// `struct linked` in c/urcu_flavour.h: an element, and the node by which it is linked, which only C code touches.
#[repr(C)]
struct Linked {
    node: [usize; 2],
    element: Element,
}

const _: () = assert!(size_of::<Linked>() == 128 && offset_of!(Linked, element) == 64);

/// A table with all elements.
pub(super) struct Lfht {
    raw: NonNull<RawTable>,
    flavour: &'static Flavour,
    functions: &'static Functions,
    pub(super) elements: usize,
    pub(super) recipe: Recipe,
}

// SAFETY: any registered thread may use a table.
unsafe impl Send for Lfht {}
// SAFETY: registered threads may share a table, and contenders have one writer at a time.
unsafe impl Sync for Lfht {}

impl Lfht {
    fn new(flavour: &'static Flavour, elements: usize, recipe: Recipe) -> Result<Self, String> {
        assert!(elements.is_power_of_two(), "the number of elements must be a power of two");
        let functions = flavour.tables.as_ref().expect("the flavour has tables");
        // SAFETY: the number of buckets is a power of two.
        let raw = NonNull::new(unsafe { (functions.new)(elements as u64) });
        let raw = raw.ok_or("no memory for a table of cds_lfht: give --elements a smaller number")?;
        let table = Self { raw, flavour, functions, elements, recipe };
        let membership = Membership::new(flavour);
        for key in 0..elements as u64 {
            table.link(recipe.element(key), &membership);
        }
        Ok(table)
    }

    /// Links an element. Only the writer calls this, for a key that is not linked.
    pub(super) fn link(&self, element: Element, _registered: &Membership) {
        let linked = Box::into_raw(Box::new(Linked { node: [0; 2], element }));
        // SAFETY: the table is alive, the thread is registered, and the table owns the element from here on.
        unsafe { (self.functions.link)(self.raw.as_ptr(), linked.cast()) };
    }

    /// Unlinks an element; readers may still hold it. Only the writer calls this.
    pub(super) fn unlink(&self, index: usize, _registered: &Membership) -> Option<*mut Element> {
        // SAFETY: the table is alive, and the thread is registered.
        let linked = unsafe { (self.functions.unlink)(self.raw.as_ptr(), index as u64) }.cast::<Linked>();
        // SAFETY: a linked element is alive.
        (!linked.is_null()).then(|| unsafe { &raw mut (*linked).element })
    }

    /// # Safety
    /// The calling thread is registered with the table's flavour. Elements that are unlinked are freed only after a grace period of
    /// that flavour.
    pub(super) unsafe fn read(&self, job: &RawJob<'_>) -> ReadOutcome {
        // SAFETY: the table is alive; the job borrows what it points to; the caller's promise.
        unsafe { (self.functions.read)(self.raw.as_ptr(), job) }
    }
}

impl Drop for Lfht {
    fn drop(&mut self) {
        let membership = Membership::new(self.flavour);
        for index in 0..self.elements {
            if let Some(element) = self.unlink(index, &membership) {
                // SAFETY: `element` has just been unlinked, and no reader is left, because `self` is exclusive.
                unsafe { free(element) };
            }
        }
        // SAFETY: the table is empty, and freed once.
        unsafe { (self.functions.free)(self.raw.as_ptr()) };
    }
}

/// Frees an element of a table.
///
/// # Safety
/// It came from [`Lfht::unlink`], is freed once, and no reader can hold it any more.
pub(super) unsafe fn free(element: *mut Element) {
    // SAFETY: the caller's promise; the element lies inside a `Linked` in a box.
    drop(unsafe { Box::from_raw(element.byte_sub(offset_of!(Linked, element)).cast::<Linked>()) });
}

/// The same for the callback head that C passes to its callback.
///
/// # Safety
/// As for [`free`], with the head of the element.
pub(super) unsafe extern "C" fn free_by_head(head: *mut c_void) {
    // SAFETY: the head is that of an element that may be freed, by the caller's promise.
    unsafe { free(Element::of_head(head)) };
}

/// The names of the contenders over these tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let with_tables = KINDS.iter().filter(|kind| kind.flavour.tables.is_some());
    with_tables.map(|kind| kind.name).chain([urcu_sync::NAME])
}

/// The contenders that are wanted. Each flavour has one table.
///
/// # Errors
/// If there is no memory for a table.
pub(crate) fn contenders(
    wanted: impl Fn(&str) -> bool,
    elements: usize,
    recipe: Recipe,
) -> Result<Vec<Named>, String> {
    let mut tables: Vec<Arc<Lfht>> = Vec::new();
    let mut field = |flavour: &'static Flavour| {
        if let Some(table) = tables.iter().find(|table| ptr::eq(table.flavour, flavour)) {
            return Ok(Field::Table(Arc::clone(table)));
        }
        let table = Arc::new(Lfht::new(flavour, elements, recipe)?);
        tables.push(Arc::clone(&table));
        Ok::<Field, String>(Field::Table(table))
    };
    let mut made: Vec<Named> = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.flavour.tables.is_some() && wanted(kind.name)) {
        made.push((kind.name, Box::new(Urcu { field: field(kind.flavour)?, kind })));
    }
    if wanted(urcu_sync::NAME) {
        made.push((urcu_sync::NAME, urcu_sync::over(field(urcu_sync::FLAVOUR)?)));
    }
    Ok(made)
}
