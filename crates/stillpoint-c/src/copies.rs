//! Other copies of the library in the process: a plugin may have the static library in it, beside the shared one of the program. Each copy
//! has domains of its own. Those that all parts of a process are to share, the *defaults*, must not be there twice unnoticed.
//!
//! A copy has a note for the loader (ELF), which leads to its [`Copy`]. The protocol by which one copy gets a default is in
//! `docs/design/capi.md`.

use std::ffi::{c_int, c_void, CStr};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::border::Refusal;

/// What there should be only once in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// Of `still_domain_default`.
    Domain = 0,
    /// Of `rcu.hpp`.
    Rcu = 1,
    /// Of `hazard_pointer.hpp`.
    Hazard = 2,
    /// Of the flavours of liburcu, by their numbers.
    Memb = 3,
    Mb = 4,
    Qsbr = 5,
    Bp = 6,
    /// Of `rte_timer.h`: a list is known by its number, and each copy counts from the beginning.
    Timers = 7,
}

impl Default {
    pub(crate) const FLAVOURS: [Self; 4] = [Self::Memb, Self::Mb, Self::Qsbr, Self::Bp];

    fn name(self) -> &'static str {
        match self {
            Self::Domain => "the default domain",
            Self::Rcu => "the rcu domain of C++",
            Self::Hazard => "the hazard domain of C++",
            Self::Memb => "the domain of liburcu's memb",
            Self::Mb => "the domain of liburcu's mb",
            Self::Qsbr => "the domain of liburcu's qsbr",
            Self::Bp => "the domain of liburcu's bp",
            Self::Timers => "the timers of rte_timer.h",
        }
    }
}

/// What other copies read, of all versions: fields and defaults may only be added at the end.
#[repr(C)]
struct Copy {
    /// How many of the words below this copy has.
    defaults: u64,
    /// For each default [`NONE`], [`MADE`], or twice the id of the process in which a thread is claiming it.
    states: [AtomicU64; 8],
}

const NONE: u64 = 0;
const MADE: u64 = 1;

static COPY: Copy = Copy { defaults: 8, states: [const { AtomicU64::new(NONE) }; 8] };

/// The bytes of a note's name, with the zero at its end.
const NAME: &[u8; 11] = b"stillpoint\0";
const KIND: u32 = 1;

// The note: three numbers, the name, and the distance from the end of the name to `COPY`.
std::arch::global_asm!(
    ".pushsection .note.stillpoint, \"a\", %note",
    ".balign 4",
    ".globl stillpoint_note",
    ".hidden stillpoint_note",
    "stillpoint_note:",
    ".long 11",
    ".long 8",
    ".long {kind}",
    ".asciz \"stillpoint\"",
    ".balign 4",
    "77:",
    ".quad {copy} - 77b",
    ".popsection",
    kind = const KIND,
    copy = sym COPY,
);

extern "C" {
    #[link_name = "stillpoint_note"]
    static NOTE: u32;
}

/// A number of this copy, which no other copy in the process has: copies are at different pages. It has 31 bits, and the lowest bit is 0.
#[inline(always)]
pub(crate) fn tag() -> u32 {
    ((&raw const COPY).addr() >> 12 << 1) as u32
}

/// The name of a file, cut off if it is long.
type File = [u8; 200];

fn shown(file: &File) -> std::borrow::Cow<'_, str> {
    CStr::from_bytes_until_nul(file).unwrap_or_default().to_string_lossy()
}

/// What a look at the other copies has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// No other copy has the default, or will have it.
    Nobody,
    /// A copy that comes first if both claim, or that has made the default.
    First,
    /// A copy that will give way if it sees this claim, which it may not have seen.
    Undecided,
}

/// What the state of another copy means to a copy that is claiming. `is_before`: whether the other copy's address is lower.
fn judge(state: u64, process: u64, is_before: bool) -> Found {
    match state {
        NONE => Found::Nobody,
        MADE => Found::First,
        // The parent's thread, which does not exist in this child.
        claiming if claiming != process => Found::Nobody,
        _ if is_before => Found::First,
        _ => Found::Undecided,
    }
}

/// Claims a default in `own`, and returns whether this copy has it. `look` calls a function with the state of each other copy, and whether
/// that copy's address is lower.
///
/// SeqCst, all: of two copies that claim at the same time, at least one sees the claim of the other.
fn claim(own: &AtomicU64, process: u64, mut look: impl FnMut(&mut dyn FnMut(u64, bool) -> bool)) -> bool {
    loop {
        let state = own.load(Ordering::SeqCst);
        if state == MADE {
            return true;
        }
        // Another thread of this copy may be claiming.
        let is_free = state != process;
        if is_free && own.compare_exchange(state, process, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    loop {
        let (mut is_first, mut is_decided) = (true, true);
        look(&mut |state, is_before| {
            match judge(state, process, is_before) {
                Found::Nobody => {}
                Found::First => is_first = false,
                Found::Undecided => is_decided = false,
            }
            is_first
        });
        if !is_first {
            own.store(NONE, Ordering::SeqCst);
            return false;
        }
        if is_decided {
            own.store(MADE, Ordering::SeqCst);
            return true;
        }
        std::thread::yield_now();
    }
}

/// The first copy that the loader names with a state that is not [`NONE`], and this copy, by their files.
struct Looking<'l> {
    default: Default,
    each: &'l mut dyn FnMut(u64, bool) -> bool,
    other: &'l mut File,
    own: &'l mut File,
}

/// Looks at one object of the loader. Returns 1 to end the walk.
unsafe extern "C" fn look_at(object: *mut libc::dl_phdr_info, _: usize, looking: *mut c_void) -> c_int {
    // SAFETY: the loader passes an object, and `try_claim` its own value.
    let (object, looking) = unsafe { (&*object, &mut *looking.cast::<Looking<'_>>()) };
    // SAFETY: the loader's object has these headers, and its segments are in memory.
    let Some(copy) = (unsafe { copy_in(object) }) else { return 0 };
    if ptr::eq(copy, &raw const COPY) {
        name(object, looking.own);
        return 0;
    }
    // SAFETY: a note leads to a copy, in memory of its object, and the loader keeps the object meanwhile. Each version begins so.
    let state = unsafe {
        if (*copy).defaults <= looking.default as u64 {
            return 0;
        }
        // SeqCst: see `claim`.
        (*(&raw const (*copy).states).cast::<AtomicU64>().add(looking.default as usize))
            .load(Ordering::SeqCst)
    };
    if state != NONE {
        name(object, looking.other);
    }
    c_int::from(!(looking.each)(state, copy.addr() < (&raw const COPY).addr()))
}

/// The copy to which a note of the object leads, if there is one.
///
/// # Safety
/// The object is one of the loader's.
unsafe fn copy_in(object: &libc::dl_phdr_info) -> Option<*const Copy> {
    // SAFETY: the object has these headers.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let segment =
            ptr::with_exposed_provenance::<u8>(object.dlpi_addr.wrapping_add(header.p_vaddr) as usize);
        // SAFETY: the segment is in memory, and this is its size.
        let notes = unsafe { std::slice::from_raw_parts(segment, header.p_memsz as usize) };
        let align = if header.p_align == 8 { 8 } else { 4 };
        if let Some(place) = find_note(notes, align) {
            // SAFETY: the place is within the segment, and has 8 bytes.
            let distance = unsafe { segment.add(place).cast::<isize>().read_unaligned() };
            let copy = segment.addr().wrapping_add(place).wrapping_add_signed(distance);
            return Some(ptr::with_exposed_provenance(copy));
        }
    }
    None
}

/// Where the content of our note begins.
fn find_note(notes: &[u8], align: usize) -> Option<usize> {
    let number = |at: usize| {
        let bytes = notes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let up = |place: usize| place.next_multiple_of(align);
    let mut start = 0;
    loop {
        let (name, content, kind) =
            (number(start)? as usize, number(start + 4)? as usize, number(start + 8)?);
        let place = up(start + 12 + name);
        if kind == KIND && content >= 8 && notes.get(start + 12..start + 12 + name)? == NAME {
            return (place + 8 <= notes.len()).then_some(place);
        }
        start = up(place + content);
    }
}

/// Writes the name of an object's file. The loader has no name for the program itself.
fn name(object: &libc::dl_phdr_info, file: &mut File) {
    *file = [0; 200];
    let room = file.len() - 1;
    // SAFETY: null, or a string of the loader.
    let given = if object.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(object.dlpi_name) } };
    if given.is_empty() {
        // SAFETY: the place has this room. On failure, the name stays empty.
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), file.as_mut_ptr().cast(), room) };
    } else {
        let length = given.to_bytes().len().min(room);
        file[..length].copy_from_slice(&given.to_bytes()[..length]);
    }
}

/// Claims a default for this copy, unless the copy has it. Fails if another copy has it.
#[inline]
pub(crate) fn have(default: Default) -> Result<(), Refusal> {
    // Relaxed: the state orders nothing within this copy.
    match COPY.states[default as usize].load(Ordering::Relaxed) {
        MADE => Ok(()),
        _ => try_claim(default),
    }
}

#[cold]
fn try_claim(default: Default) -> Result<(), Refusal> {
    // The linker keeps the note if it takes this object file out of an archive. SAFETY: the note begins with a number.
    unsafe { ptr::read_volatile(&raw const NOTE) };
    let (mut other, mut own): (File, File) = ([0; 200], [0; 200]);
    // SAFETY: the function has no preconditions.
    let process = 2 * unsafe { libc::getpid() } as u64;
    let is_first = claim(&COPY.states[default as usize], process, |each| {
        let mut looking = Looking { default, each, other: &mut other, own: &mut own };
        // SAFETY: the function gets a value that it accepts.
        unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut looking).cast()) };
    });
    if is_first {
        return Ok(());
    }
    if own[0] == 0 {
        own_name(&mut own);
    }
    Err(Refusal::told(
        libc::EEXIST,
        format_args!(
            "two copies of stillpoint are in the process: {} already has {}, so {} cannot have another one; link both with the shared \
             library, or use domains with names",
            shown(&other),
            default.name(),
            shown(&own)
        ),
        c"another copy of stillpoint in the process already has this default: link both with the shared library, or use domains with names",
    ))
}

/// The name of this copy's file, if the walk ended before it.
#[cold]
fn own_name(file: &mut File) {
    unsafe extern "C" fn compare(object: *mut libc::dl_phdr_info, _: usize, file: *mut c_void) -> c_int {
        // SAFETY: the loader passes an object, and the function below its own value.
        let (object, file) = unsafe { (&*object, &mut *file.cast::<File>()) };
        // SAFETY: the object is the loader's.
        let is_own = unsafe { copy_in(object) }.is_some_and(|copy| ptr::eq(copy, &raw const COPY));
        if is_own {
            name(object, file);
        }
        c_int::from(is_own)
    }
    // SAFETY: the function gets a value that it accepts.
    unsafe { libc::dl_iterate_phdr(Some(compare), ptr::from_mut(file).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u64 = 84;

    /// A claim by copy `own`, among copies that are in the order of their addresses. `before` runs before each look, with its number.
    fn claims(states: &[AtomicU64], own: usize, before: impl Fn(usize)) -> bool {
        let mut looks = 0;
        claim(&states[own], PROCESS, |each| {
            before(looks);
            looks += 1;
            let mut others = states.iter().enumerate().filter(|(other, _)| *other != own);
            let _ = others.all(|(other, state)| each(state.load(Ordering::SeqCst), other < own));
        })
    }

    fn states<const N: usize>(states: [u64; N]) -> [AtomicU64; N] {
        states.map(AtomicU64::new)
    }

    fn read<const N: usize>(states: &[AtomicU64; N]) -> [u64; N] {
        states.each_ref().map(|state| state.load(Ordering::Relaxed))
    }

    fn once(looks: usize) {
        assert_eq!(looks, 0, "it waits");
    }

    #[test]
    fn the_copy_that_comes_first_has_the_default_wherever_it_is() {
        for (first, second) in [(0, 1), (1, 0)] {
            let states = states([NONE; 2]);
            assert!(claims(&states, first, once));
            for _ in 0..2 {
                assert!(!claims(&states, second, once));
            }
            assert!(claims(&states, first, |_| panic!("it has the default")));
            assert_eq!((read(&states)[first], read(&states)[second]), (MADE, NONE));
        }
    }

    /// Each copy claims in the middle of the claim of each other one. A claim that waits for the outer one would wait for ever.
    #[test]
    fn a_claim_gives_way_to_one_at_a_lower_address() {
        let states = states([NONE; 2]);
        let won = claims(&states, 0, |_| assert!(!claims(&states, 1, once)));
        assert!(won && read(&states) == [MADE, NONE]);
    }

    #[test]
    fn a_claim_waits_for_one_at_a_higher_address() {
        // The other one had looked before this copy claimed, or it gives way.
        for (outcome, won) in [(MADE, false), (NONE, true)] {
            let states = states([NONE, PROCESS]);
            let decide = |looks| {
                if looks == 3 {
                    states[1].store(outcome, Ordering::SeqCst);
                }
            };
            assert_eq!(claims(&states, 0, decide), won);
            assert_eq!(read(&states), [if won { MADE } else { NONE }, outcome]);
        }
    }

    #[test]
    fn a_thread_waits_for_a_claim_of_its_own_copy() {
        for outcome in [MADE, NONE] {
            let states = states([PROCESS, NONE]);
            let is_decided = AtomicU64::new(0);
            let look = |_| assert!(outcome == NONE && is_decided.load(Ordering::SeqCst) == 1);
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| claims(&states, 0, look));
                for _ in 0..1000 {
                    std::thread::yield_now();
                }
                is_decided.store(1, Ordering::SeqCst);
                states[0].store(outcome, Ordering::SeqCst);
                assert!(thread.join().unwrap());
            });
            assert_eq!(read(&states), [MADE, NONE]);
        }
    }

    #[test]
    fn a_child_does_not_wait_for_a_claim_of_its_parent() {
        assert!(claims(&states([NONE, PROCESS + 2]), 0, once));
        assert!(claims(&states([PROCESS + 2, NONE]), 1, once));
        assert!(claims(&states([PROCESS + 2]), 0, once));
    }

    #[test]
    fn the_note_is_found_among_others() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            for number in [name.len() as u32, content.len() as u32, kind] {
                note.extend(number.to_ne_bytes());
            }
            for part in [name, content] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let other = note(b"GNU\0", 1, &[1; 21]);
        let ours = note(NAME, KIND, &[2; 8]);
        let found = [other.clone(), ours.clone(), other.clone()].concat();
        assert_eq!(find_note(&found, 4), Some(other.len() + 24));
        assert_eq!(find_note(&other, 4), None);
        assert_eq!(find_note(&note(NAME, KIND + 1, &[2; 8]), 4), None);
        assert_eq!(find_note(&ours[..ours.len() - 1], 4), None);
    }

    /// This program is linked with the library, so it has a note.
    #[test]
    fn this_copy_is_found() {
        have(Default::Domain).unwrap();
        let mut file = [0; 200];
        own_name(&mut file);
        assert_eq!(shown(&file), std::env::current_exe().unwrap().to_string_lossy());
    }
}
