//! Where a debugger finds the domains and their readers, in a process or in a core file, without debug information: a table of
//! offsets in a section of its own. `contrib/debugger/stillpoint_rcu.py` of the repository reads it.

use std::mem::offset_of;

use super::core::record::Record;
use super::core::registry::Registry;
use super::core::Protocol;
use super::directory::{Entry, ENTRIES};
use super::wait::counters::Counters;
use super::Core;

/// All fields are words, in the order in which the script reads them.
#[repr(C)]
pub(super) struct Layout {
    magic: [u8; 8],
    /// Increased with each change of this struct, and of what its offsets mean.
    version: usize,
    /// In bytes. The linker puts the tables of several versions of the library one after the other.
    size: usize,
    entries: &'static Registry<Entry>,
    registries: [[usize; 10]; 3],
    entry: [usize; 2],
    core: [usize; 5],
    protocol: [usize; 2],
    record: [usize; 13],
    counters: [usize; 6],
}

#[used]
#[link_section = "stillpoint_layout"]
pub(super) static LAYOUT: Layout = Layout {
    magic: *b"stillpnt",
    version: 2,
    size: size_of::<Layout>(),
    entries: &ENTRIES,
    registries: [Registry::<Entry>::LAYOUT, Registry::<Record>::LAYOUT, Registry::<Counters>::LAYOUT],
    entry: Entry::LAYOUT,
    core: [
        offset_of!(Core, reference) + super::directory::Name::NUMBER,
        offset_of!(Core, name),
        offset_of!(Core, protocol),
        offset_of!(Core, counters),
        offset_of!(Core, shared_counters),
    ],
    protocol: Protocol::LAYOUT,
    record: Record::LAYOUT,
    counters: Counters::LAYOUT,
};
