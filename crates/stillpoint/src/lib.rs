//! The concurrency toolkit of a data plane.
//!
//! ```
//! use stillpoint::{rcu::RcuCell, table::Table};
//!
//! let config = RcuCell::new(String::from("first"));
//! let current = config.get().expect("never empty here"); // keeps this string alive, and nothing else, however long it is held
//! config.set(String::from("second")); // a later write frees the old string once no reader holds it
//! println!("{} {:?}", *current, config.get());
//!
//! let hits: Table<&str, u64> = Table::new();
//! hits.insert("index", 1).expect("there is memory");
//! let entry = hits.get("index").expect("it is there"); // keeps this entry alive, and nothing else
//! hits.remove("index"); // a later write frees the entry once no reader holds it
//! println!("{}: {}", entry.key(), *entry);
//! ```
//!
//! **Who frees.** What waits is on a shelf of its [domain](rcu::Domain). Whoever writes, polls, or waits in
//! [`barrier`](rcu::barrier), and the [background thread](rcu::BackgroundReclaimer), serves it: what cells have replaced, and what tables
//! have removed. So a destructor may run on any of these threads. What is handed to a reclaimer, only that reclaimer frees.
//!
//! **In an idle program nothing is freed**, since no thread does any of this: a configuration that changes once a day leaves the old one
//! waiting until the next change. One line frees it as soon as no reader holds it:
//!
//! ```
//! let reclaimer = stillpoint::rcu::default_domain().background().spawn()?; // keep it as long as the program runs
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Three types are the core:
//!
//! - [`RcuCell`](rcu::RcuCell): a place for one object that readers [load](rcu::RcuCell::get) and writers replace.
//! - [`Table`](table::Table): a hash table that many threads [read](table::Table::get) and write.
//! - [`Guard`](rcu::Guard), from [`rcu::pin`] or [`Table::pin`](table::Table::pin): a region, for bursts and traversals. What is
//!   loaded in it stays valid until it ends, and nothing that is retired meanwhile is freed. So keep it short.
//!
//! The modules:
//!
//! - [`rcu`]: memory reclamation that preempted readers need not stall. Start here.
//! - [`table`]: a lock-free hash table that frees its entries through `rcu`.
//! - [`timer`]: timer wheels for one thread, and timers across threads with a definite answer.
//! - [`pool`]: objects in contiguous buckets, handed out singly or as blocks. Any thread may free them.
//! - [`fence`]: light and heavy fences, the asymmetric pair that spares readers a fence.
//!
//! The example above uses the default domain. A thread becomes a reader of it at its first use. A library, or a program that
//! needs limits or several groups of readers, names its domain, readers and reclaimers:
//!
//! ```
//! use stillpoint::rcu::Domain;
//!
//! let domain = Domain::new();
//! let config = domain.cell(String::from("first"));
//! let mut reclaimer = domain.reclaimer();
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let reader = domain.reader(); // one for each thread; keep it
//!         let current = config.protect(&reader).expect("never empty here");
//!         assert!(!current.is_empty());
//!     });
//! });
//!
//! let old = config.replace(String::from("second")).expect("never empty here");
//! reclaimer.retire(old)?; // unlinked, not freed
//! reclaimer.poll(); // frees what no reader can hold any more
//! # Ok::<(), stillpoint::rcu::RetireError<String>>(())
//! ```
//!
//! # Features
//!
//! These are on by default: `table`, `timer` and `pool`, the modules of these names; `boost`, the boosting of preempted
//! readers; and `std`, which brings `rcu` and `fence`, and which `table`, `pool` and `boost` need. With
//! `default-features = false` and `timer`, the crate has [`timer::Wheel`] and [`timer::Bitset`], which need only `alloc`.
//! Off by default are `serde`, which serializes tables and sets; `delay-queue`, which adds `timer::delay_queue`, a queue of delays for
//! tasks and threads; `metrics`, which adds the module of this name; and `tracing`: with it,
//! [stalls](rcu::DomainBuilder::stall_hook), refused fences, full domains and full tables are events of
//! [`tracing`](https://docs.rs/tracing).
//!
//! The feature `loom` is for models on top of this crate. With the feature and `RUSTFLAGS="--cfg stillpoint_loom"`, the atomics
//! of links and engines are [loom](https://docs.rs/loom)'s, and some of the interface is missing, `rcu::raw` among it. Make each
//! domain within the model, and build with optimization, since loom's threads have small stacks. The feature alone changes
//! nothing, and the flag alone does not compile. A model of a program's own code needs neither: with `--cfg loom`, which is usual
//! for that, this crate is the same as in any other build.
//!
//! # Systems
//!
//! The library is written for Linux, where its tests run (x86-64; aarch64 under emulation). It also compiles on other systems that
//! have the standard library. This is checked for macOS and Windows, but the library has not been run there. Other systems lack
//! some of what Linux provides:
//!
//! | what | on systems other than Linux |
//! |---|---|
//! | [`fence::Mode::Asymmetric`] | refused, with an error that says why, unless [a heavy fence was set](fence::set_heavy); [`fence::Mode::best`] is `Symmetric`: readers pay a fence |
//! | boosting, the module [`pool`] | missing, whatever the features |
//! | `reset_after_fork` | missing |
//! | sleeping threads | use a table of locks instead of futexes: waking takes a lock, and sometimes wakes threads needlessly |
//! | guards in signal handlers | not allowed: see [`rcu::try_pin`] |
//! | the end of a thread | on Windows, a thread's readers end [before some of its thread-locals](rcu::pin) |
//! | reports of stalls | name no thread, and do not say what it is doing: [`rcu::wait::Activity::Unknown`] |
//! | growth of a table | takes as long as clearing the new buckets, if the allocator clears memory itself |
//! | [`timer::Clock`] | reads the system's clock |
//!
//! With `RUSTFLAGS="--cfg stillpoint_portable"` the library does on Linux what it does elsewhere. The tests also run in this
//! mode.

#![cfg_attr(not(feature = "std"), no_std)]
// The documentation of each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Some code serves only modules that such a build leaves out.
#![cfg_attr(
    any(
        stillpoint_loom,
        not(target_os = "linux"),
        not(all(feature = "boost", feature = "pool", feature = "table", feature = "timer"))
    ),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "timer")]
extern crate alloc;

/// The programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// The programs of the book, page by page. Pages about other crates are tested with those crates.
#[cfg(doctest)]
mod book {
    macro_rules! pages {
        ($($page:literal as $name:ident),+ $(,)?) => {
            $(#[doc = include_str!(concat!("../../../docs/guide/", $page, ".md"))] mod $name {})+
        };
    }

    pages! {
        "multicast" as multicast,
        "operation" as operation,
        "pool" as pool,
        "rcu" as rcu,
        "service" as service,
        "start" as start,
        "table" as table,
    }

    #[cfg(feature = "delay-queue")]
    #[doc = include_str!("../../../docs/guide/timer.md")]
    mod timer {}
}

#[cfg(feature = "std")]
#[doc(hidden)]
pub mod busted;
#[cfg(feature = "std")]
pub mod fence;
#[cfg(feature = "std")]
mod frames;
#[cfg(all(feature = "metrics", not(stillpoint_loom)))]
pub mod metrics;
#[cfg(feature = "std")]
mod own_writes;
#[cfg(all(feature = "pool", target_os = "linux"))]
pub mod pool;
#[cfg(feature = "std")]
pub mod rcu;
#[cfg(feature = "table")]
pub mod table;
#[cfg(feature = "timer")]
pub mod timer;
