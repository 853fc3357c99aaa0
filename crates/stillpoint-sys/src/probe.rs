//! Static probes, which tracers find in the program's file, and switch on while it runs.
//!
//! A probe is one `nop`, and a note in the ELF file with its place, its name, and the registers of its arguments: the format of
//! SystemTap's `sdt.h`, version 3, which `bpftrace`, `perf`, `gdb` and `stap` read. There is no library, no branch and no variable
//! behind it. A tracer that attaches puts a trap in place of the `nop`.
//!
//! On Linux, on x86-64 and AArch64. Elsewhere, in models and under Miri, a probe is nothing.
//!
//! Source: the page *UserSpaceProbeImplementation* of the SystemTap wiki.

/// A place of the program that tracers find as `usdt:FILE:stillpoint:NAME`: `probe!("name", argument, ...)`, each argument a `u64`.
///
/// Arguments are computed whether or not a tracer is there. So they are values that the caller has in registers, and addresses
/// rather than what lies there.
#[macro_export]
macro_rules! probe {
    ($name:literal, $first:expr $(, $more:expr)* $(,)?) => {
        $crate::sdt!($name, $first $(, $more)*)
    };
}

/// The note of a [`probe!`].
#[doc(hidden)]
#[macro_export]
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, stillpoint_loom, stillpoint_portable))
))]
macro_rules! sdt {
    ($name:literal, $first:expr $(, $more:expr)*) => {{
        // Never called: the arguments' types are checked outside of the unsafe block.
        let _ = || {
            let _: u64 = $first;
            $(let _: u64 = $more;)*
        };
        let first: u64 = $first;
        // SAFETY: the instruction does nothing. The sections have no flag but that of the comdat group, whose symbol all probes of
        // the program share.
        unsafe {
            ::core::arch::asm!(
                "990: nop",
                // The lengths of the owner and of the contents, and the note's type; the owner; the contents. `?`: in the group of
                // the code, which the linker may leave out.
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                // The place, that of the base when this was linked, and no semaphore.
                "993: .8byte 990b, _.stapsdt.base, 0",
                ".asciz \"stillpoint\"",
                concat!(".asciz \"", $name, "\""),
                concat!(
                    ".asciz \"8@", $crate::register!(), "{}",
                    $($crate::register!(" 8@", $more), "{}",)*
                    "\""
                ),
                "994: .balign 4",
                ".popsection",
                // `R`: no code refers to it, and `gdb` passes over files without it.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                in(reg) first,
                $(in(reg) { let more: u64 = $more; more },)*
                // Not `nomem`: a tracer reads what is there.
                options(nostack, preserves_flags, readonly),
            )
        }
    }};
}

/// See above: nothing, but for the types.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, stillpoint_loom, stillpoint_portable))
)))]
macro_rules! sdt {
    ($name:literal, $($argument:expr),*) => {
        $(let _: u64 = $argument;)*
    };
}

/// What comes before a register's name in the assembler's language. With arguments: after the first one, before the register of
/// the second.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! register {
    () => {
        "%"
    };
    ($before:literal, $argument:expr) => {
        concat!($before, "%")
    };
}

/// What comes before a register's name in the assembler's language. With arguments: after the first one, before the register of
/// the second.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "aarch64")]
macro_rules! register {
    () => {
        ""
    };
    ($before:literal, $argument:expr) => {
        $before
    };
}
