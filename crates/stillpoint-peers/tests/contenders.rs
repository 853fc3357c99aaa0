//! Tests of every contender that this build has: no element is freed while a reader uses it, each is freed exactly once, the readers'
//! loops notice wrong and freed elements, and a contender can be used again and again in one process.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_peers::{
    Contender, Delays, Element, ReadJob, ReadOutcome, Slots, Work, catalogue, contenders, micro, missing,
    timed, versions,
};

const READERS: usize = 3;

fn slots(len: usize) -> (Arc<Slots>, &'static Delays) {
    let delays: &'static Delays = Box::leak(Box::new(Delays::new(1 << 16)));
    (Arc::new(Slots::new(len, delays)), delays)
}

/// Runs `work` beside readers, and beside the background thread if the contender needs one.
fn with_readers(contender: &dyn Contender, work: impl FnOnce()) -> ReadOutcome {
    around(contender, None, work)
}

/// The same with readers whose sections contain `section`.
fn with_sections(contender: &dyn Contender, section: &Work, work: impl FnOnce()) -> ReadOutcome {
    around(contender, Some(section), work)
}

fn around(contender: &dyn Contender, section: Option<&Work>, work: impl FnOnce()) -> ReadOutcome {
    let (stop_readers, stop_background) = (AtomicBool::new(false), AtomicBool::new(false));
    let registered = Barrier::new(READERS + 1);
    thread::scope(|scope| {
        let background =
            contender.needs_background().then(|| scope.spawn(|| contender.background(&stop_background)));
        let readers: Vec<_> = (0..READERS)
            .map(|index| {
                let (stop, registered) = (&stop_readers, &registered);
                scope.spawn(move || {
                    let job =
                        ReadJob { index, seed: 0x9e37_79b9_7f4a_7c15 ^ index as u64, stop, work: section };
                    contender.read(&job, &|| {
                        registered.wait();
                    })
                })
            })
            .collect();
        registered.wait();
        work();
        stop_readers.store(true, Ordering::Relaxed);
        let mut sum = ReadOutcome::default();
        for reader in readers {
            let outcome = reader.join().unwrap();
            sum.lookups += outcome.lookups;
            sum.mismatches += outcome.mismatches;
        }
        stop_background.store(true, Ordering::Relaxed);
        if let Some(background) = background {
            background.join().unwrap();
        }
        sum
    })
}

#[test]
fn every_replaced_element_is_freed_once_and_never_under_a_reader() {
    let (slots, delays) = slots(64);
    let contenders = contenders(&slots, READERS);
    // Two rounds, interleaved: threads register again, with contenders that have been used before.
    for round in 0..2 {
        for (name, contender) in &contenders {
            let mut replaced = 0;
            let mut writer = contender.writer();
            let outcome = with_readers(contender.as_ref(), || {
                let end = Instant::now() + Duration::from_millis(60);
                while Instant::now() < end {
                    for _ in 0..50 {
                        writer.replace(replaced * 29 % 64);
                        replaced += 1;
                    }
                    writer.poll();
                    // Readers share the cores with the writer. Let them reach a quiescent state.
                    thread::yield_now();
                }
            });
            writer.drain();
            assert!(outcome.lookups > 0, "{name}, round {round}: no reader looked anything up");
            assert_eq!(outcome.mismatches, 0, "{name}, round {round}: freed while a reader used it");
            assert_eq!(delays.freed(), replaced, "{name}, round {round}: elements freed");
            assert_eq!(delays.take().len(), replaced.min(1 << 16), "{name}, round {round}: delays recorded");
            drop(writer);
            assert_eq!(delays.freed(), 0, "{name}, round {round}: freed again");
        }
    }
    drop(contenders);
    assert_eq!(delays.freed(), 0, "dropping a drained contender frees nothing");
    assert_eq!(Arc::strong_count(&slots), 1, "a dropped contender lets go of the slots");
}

#[test]
fn sections_of_any_kind_keep_what_they_read_and_no_more() {
    let idle = Duration::from_micros(50);
    for work in [
        Work { inside: 2_000, sleep: Duration::ZERO, outside: 0 },
        Work { inside: 2_000, sleep: Duration::ZERO, outside: 2_000 },
        Work { inside: 2_000, sleep: idle, outside: 0 },
    ] {
        for entry in catalogue() {
            let delays: &'static Delays = Box::leak(Box::new(Delays::new(1 << 16)));
            let slots = Arc::new(Slots::empty(64, delays));
            let contender = entry.make(&slots, READERS);
            let (mut unlinked, mut bytes, mut linked) = (0, 0, [0; 64]);
            let mut writer = contender.writer();
            let outcome = with_sections(contender.as_ref(), &work, || {
                for round in 0..1_000 {
                    let (index, words) = (round * 29 % 64, round % 7 * 8);
                    let new =
                        (round % 3 != 0).then(|| Box::new(Element::with_body(index as u64, words, delays)));
                    unlinked += usize::from(linked[index] > 0);
                    bytes += linked[index];
                    linked[index] = if new.is_some() { Element::bytes_with_body(words) } else { 0 };
                    writer.publish(index, new);
                    writer.poll();
                    if round % 20 == 0 {
                        thread::sleep(idle);
                    }
                }
                if contender.has_synchronize() {
                    contender.synchronize();
                }
            });
            writer.drain();
            let name = entry.name;
            assert!(outcome.lookups > 0, "{name}, {work:?}: no reader looked anything up");
            assert_eq!(outcome.mismatches, 0, "{name}, {work:?}: freed while a reader used it");
            assert_eq!((delays.freed(), delays.freed_bytes()), (unlinked, bytes), "{name}, {work:?}");
        }
    }
}

#[test]
fn only_liburcu_waits_for_a_grace_period_apart_from_its_callbacks() {
    let (slots, _) = slots(64);
    for (name, contender) in contenders(&slots, 1) {
        let expected = ["liburcu", "drop-in"].iter().any(|of| name.starts_with(of));
        assert_eq!(contender.has_synchronize(), expected, "{name}");
        let writer = contender.writer();
        assert!(expected || writer.worker_cpu_time().is_zero(), "{name}");
    }
}

#[test]
fn dropping_a_writer_frees_what_it_has_replaced() {
    let (slots, delays) = slots(64);
    for (name, contender) in contenders(&slots, 1) {
        let mut writer = contender.writer();
        for index in 0..1000 {
            writer.replace(index % 64);
        }
        drop(writer);
        assert_eq!(delays.take().len(), 1000, "{name}");
    }
}

#[test]
fn writers_of_all_contenders_may_share_a_thread() {
    let (slots, delays) = slots(64);
    let contenders = contenders(&slots, 1);
    let mut writers: Vec<_> = contenders.iter().map(|(_, contender)| contender.writer()).collect();
    for index in 0..64 {
        for writer in &mut writers {
            writer.replace(index);
        }
    }
    for writer in &mut writers {
        writer.drain();
    }
    assert_eq!(delays.freed(), 64 * contenders.len());
}

#[test]
fn readers_notice_a_wrong_element() {
    for entry in catalogue() {
        let (slots, delays) = slots(64);
        let wrong = Box::into_raw(Box::new(Element::new(8, delays)));
        let right = slots.as_slice()[7].swap(wrong, Ordering::AcqRel);
        let contender = entry.make(&slots, READERS);
        let outcome = with_readers(contender.as_ref(), || thread::sleep(Duration::from_millis(20)));
        let share = outcome.lookups as f64 / outcome.mismatches as f64;
        assert!((48.0..80.0).contains(&share), "{}: {outcome:?}, expected one in 64", entry.name);
        slots.as_slice()[7].store(right, Ordering::Release);
        // SAFETY: `wrong` came from a `Box` above, and the readers have left.
        drop(unsafe { Box::from_raw(wrong) });
    }
}

/// The element is dropped but not deallocated: it looks like a freed element whose memory was not used again.
#[test]
fn readers_notice_a_poisoned_element() {
    for entry in catalogue() {
        let (slots, delays) = slots(64);
        let element = slots.as_slice()[7].load(Ordering::Acquire);
        // SAFETY: there is no reader yet, and a new element is written here before the slots drop it.
        unsafe { ptr::drop_in_place(element) };
        let contender = entry.make(&slots, READERS);
        let idle = || thread::sleep(Duration::from_millis(20));
        let outcome = with_readers(contender.as_ref(), idle);
        assert!(outcome.mismatches > 0, "{}: {outcome:?}", entry.name);
        let section = Work { inside: 100, sleep: Duration::ZERO, outside: 100 };
        let outcome = with_sections(contender.as_ref(), &section, idle);
        assert!(outcome.mismatches > 0, "{} in sections: {outcome:?}", entry.name);
        // SAFETY: the memory is still the element's, and the readers have left.
        unsafe { ptr::write(element, Element::new(7, delays)) };
    }
}

const OPERATIONS: [&str; 13] = [
    "quiescent",
    "pin",
    "pin-linked",
    "protect",
    "keep",
    "start",
    "check",
    "retire",
    "lookup",
    "burst",
    "lookup-1m",
    "burst-1m",
    "heavy",
];

#[test]
fn micro_operations_run_any_number_of_times() {
    let names: BTreeSet<_> = catalogue().iter().map(|entry| entry.name).collect();
    let mut rows = BTreeSet::new();
    for micro in micro() {
        // `drop-in/rte_rcu_qsbr` has only rows here, and is no contender. papaya is one among the tables.
        let is_known =
            names.contains(micro.contender) || ["drop-in/rte_rcu_qsbr", "papaya"].contains(&micro.contender);
        assert!(is_known, "{micro:?}");
        assert!(OPERATIONS.contains(&micro.operation), "{micro:?}");
        assert!(rows.insert((micro.contender, micro.operation)), "{micro:?} is listed twice");
        for iterations in [0, 1, 1000] {
            (micro.run)(iterations);
        }
    }
    for name in ["crossbeam-epoch", "seize", "haphazard"] {
        assert!(rows.contains(&(name, "retire")), "{name} has no row `retire`");
    }
}

#[test]
fn operations_that_measure_themselves_run_any_number_of_times() {
    for timed in timed() {
        for count in [0, 1, 3] {
            let begin = Instant::now();
            let nanoseconds = (timed.nanoseconds)(count);
            assert!(u128::from(nanoseconds) <= begin.elapsed().as_nanos(), "{timed:?}");
        }
    }
}

#[test]
fn a_peer_is_either_there_or_missing_with_a_reason() {
    let present: BTreeSet<_> = catalogue().iter().map(|entry| entry.name).collect();
    let mut known = present.clone();
    for peer in missing() {
        assert!(
            !peer.why.is_empty() && (peer.package.ends_with("-dev") || peer.package == "gcc"),
            "{peer:?}"
        );
        for name in peer.contenders {
            assert!(known.insert(name), "{name} is both in the catalogue and missing");
        }
        assert!(
            versions().iter().all(|(name, _)| *name != peer.peer),
            "{peer:?} is missing, but has a version"
        );
    }
    let all = [
        "c/protected",
        "c/guard",
        "c/qsbr",
        "liburcu/qsbr",
        "liburcu/qsbr+sync",
        "liburcu/qsbr+rt",
        "liburcu/memb",
        "liburcu/mb",
        "drop-in/urcu-qsbr",
        "drop-in/urcu-memb",
        "drop-in/urcu-mb+boost",
        "dpdk/rcu",
        "dpdk/rcu+poll",
        "dpdk/rcu+background",
        "ck/epoch",
        "crossbeam-epoch",
        "seize",
        "haphazard",
    ];
    // The catalogue has no timers, but these may be missing, too.
    known.remove("c/htimer");
    assert_eq!(known, BTreeSet::from(all));

    for entry in catalogue() {
        let version = versions().into_iter().find(|(name, _)| *name == entry.peer);
        let (_, version) = version.unwrap_or_else(|| panic!("{entry:?} comes from a peer without a version"));
        assert!(version == "unknown" || version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    }
}
