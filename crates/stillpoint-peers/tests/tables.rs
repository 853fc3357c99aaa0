//! Hash tables as contenders of the experiment `reclaim`. The tests are a separate program because DPDK is initialised once in a
//! process.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stillpoint_peers::table::{HAS_DPDK, initialise_dpdk, make_reclaiming, reclaiming};
use stillpoint_peers::{Contender, Delays, Element, Named, ReadJob, ReadOutcome, Recipe, Work};

const ELEMENTS: usize = 64;
const WORDS: usize = 3;

/// All such contenders of this build.
fn contenders(recipe: Recipe) -> Vec<Named> {
    let dpdk = thread::spawn(|| initialise_dpdk(192, false, first_cpu())).join().unwrap();
    assert_eq!(dpdk.is_ok(), HAS_DPDK, "{dpdk:?}");
    let contenders = make_reclaiming(|_| true, ELEMENTS, recipe, 2).unwrap();
    assert_eq!(contenders.len(), reclaiming().len());
    contenders
}

#[test]
fn a_build_has_the_tables_of_the_peers_that_it_has() {
    let names = reclaiming();
    assert!(names.contains(&"papaya"), "{names:?}");
    let of_liburcu = ["qsbr", "qsbr+sync", "qsbr+rt", "memb", "mb"].map(|name| format!("liburcu/{name}"));
    let of_dpdk = ["rcu", "rcu+poll", "rcu+background"].map(|name| format!("dpdk/{name}"));
    for (peer, tables) in [("liburcu", of_liburcu.as_slice()), ("dpdk", &of_dpdk)] {
        let is_there = stillpoint_peers::versions().iter().any(|(name, _)| *name == peer);
        assert!(tables.iter().all(|name| names.contains(&name.as_str()) == is_there), "{peer}: {names:?}");
    }
}

#[test]
fn every_deleted_element_is_freed_once_and_never_under_a_reader() {
    let delays: &'static Delays = Box::leak(Box::new(Delays::new(1 << 16)));
    let contenders = contenders(Recipe { words: WORDS, delays });
    // The rounds are interleaved, so that tables are used again; some contenders share a table.
    for round in 0..2 {
        for (name, contender) in &contenders {
            check(name, &**contender, delays, round);
        }
    }
    drop(contenders);
    assert_eq!(delays.freed(), 0, "elements that were never deleted have no delay");
}

/// Deletes beside readers: first beside plain lookups, then beside readers whose sections contain some work.
fn check(name: &str, contender: &dyn Contender, delays: &Delays, round: usize) {
    const REPLACED: usize = 1_000;
    let work = Work { inside: 50, sleep: Duration::ZERO, outside: 50 };
    let mut bytes = delays.freed_bytes();
    for in_sections in [false, true] {
        let (stop, stop_background) = (AtomicBool::new(false), AtomicBool::new(false));
        let (mut there, mut deleted) = ([true; ELEMENTS], 0);
        let read = |index| {
            let work = in_sections.then_some(&work);
            contender.read(&ReadJob { index, seed: 7 + index as u64, stop: &stop, work }, &|| ())
        };
        thread::scope(|scope| {
            let readers = [0, 1].map(|index| scope.spawn(move || read(index)));
            let background =
                contender.needs_background().then(|| scope.spawn(|| contender.background(&stop_background)));
            let mut writer = contender.writer();
            for number in 0..REPLACED {
                let index = number * 29 % ELEMENTS;
                deleted += usize::from(there[index]);
                // Some keys stay deleted for a while.
                there[index] = number % 5 != 0;
                match there[index] {
                    true => writer.replace(index),
                    false => writer.publish(index, None),
                }
                if number % 16 == 0 {
                    writer.poll();
                    thread::yield_now();
                }
            }
            (0..ELEMENTS).for_each(|index| writer.replace(index));
            deleted += there.iter().filter(|there| **there).count();
            stop.store(true, Ordering::Relaxed);
            for outcome in readers.map(|reader| reader.join().unwrap()) {
                assert_eq!(outcome.mismatches, 0, "{name}, round {round}, sections: {in_sections}");
            }
            writer.drain();
            stop_background.store(true, Ordering::Relaxed);
            if let Some(background) = background {
                background.join().unwrap();
            }
        });
        assert_eq!(delays.freed(), deleted, "{name}, round {round}: elements freed");
        assert_eq!(delays.take().len(), deleted);
        bytes += deleted * Element::bytes_with_body(WORDS);
        assert_eq!(delays.freed_bytes(), bytes, "{name}: bodies are counted");
    }
}

/// The element is dropped but not deallocated: it looks like a freed element whose memory was not used again.
#[test]
fn readers_notice_a_poisoned_element() {
    let delays: &'static Delays = Box::leak(Box::new(Delays::new(1)));
    for (name, contender) in contenders(Recipe::plain(delays)) {
        let mut writer = contender.writer();
        let sound = read_for_a_while(&*contender);
        assert!(sound.mismatches == 0, "{name}: {sound:?}");
        let mut poisoned = Box::new(Element::new(7, delays));
        // SAFETY: the element owns nothing, so it may be dropped again.
        unsafe { ptr::drop_in_place(&raw mut *poisoned) };
        writer.publish(7, Some(poisoned));
        let outcome = read_for_a_while(&*contender);
        let share = outcome.lookups as f64 / outcome.mismatches as f64;
        assert!((48.0..80.0).contains(&share), "{name}: {outcome:?}, expected one in 64");
        writer.replace(7); // other contenders share the table, and must find a live element
    }
}

/// Runs a reader until it has done thousands of lookups, which may take long on a busy machine.
fn read_for_a_while(contender: &dyn Contender) -> ReadOutcome {
    let read_for = |milliseconds| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope
                .spawn(|| contender.read(&ReadJob { index: 0, seed: 9, stop: &stop, work: None }, &|| ()));
            thread::sleep(Duration::from_millis(milliseconds));
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap()
        })
    };
    let mut outcomes = (0..12).map(|doubled| read_for(10 << doubled));
    outcomes
        .find(|outcome| outcome.lookups > 10_000)
        .expect("no reader got through 10,000 lookups in half a minute")
}

/// A CPU that this process may use: the layer pins the thread that initialises it.
fn first_cpu() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}
