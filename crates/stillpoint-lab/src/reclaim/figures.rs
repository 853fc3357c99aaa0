//! The figures of the talk.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Figure, Up};

use super::names::{GROUPS, ONE_CORE, OWN_CORE, SPREAD};

const DELAY: Up = Up::less("delay_us_mean", "mean delay from unlink to free, in µs")
    .between("delay_us_mean_least", "delay_us_mean_most");
const LOOKUPS: Up = Up::more("lookups_per_s", "lookups a second, of all readers");
const READERS: Across = Across::param("readers", "readers");
const COMMON: Figure = Figure {
    experiment: "reclaim",
    beside: &["policy", "cores", "elements", "round_s", "deletes_per_s", "bytes"],
    ..Figure::PLAIN
};

/// Of the best contender of each library; it stands first on the page.
pub(crate) static BEST: Figure = Figure {
    name: "delay-of-libraries",
    scenarios: &[ONE_CORE],
    title: "All readers on one CPU: the best of each library",
    across: READERS,
    up: DELAY,
    ..COMMON
};

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "delay-own-core": "A: each reader on a CPU of its own" {
        scenarios: &[OWN_CORE], across: READERS, up: DELAY,
        words: "The talk, on an Arm server: DPDK frees 72 to 77 % sooner than liburcu, 79 to 88 % with a background thread; liburcu takes 6.6 ms. Bands reach from the least to the most of the rounds' means.",
    }
    "delay-one-core": "B: all readers on one CPU" {
        scenarios: &[ONE_CORE], across: READERS, up: DELAY,
        words: "The talk: liburcu rises to 154.7 ms with the number of readers; DPDK frees 41 to 61 % sooner. Bands reach from the least to the most of the rounds' means.",
    }
    "delay-spread": "C: readers over several CPUs" {
        scenarios: &[SPREAD], across: Across::param("cores", "CPUs"), up: DELAY,
        beside: &["policy", "elements", "round_s", "deletes_per_s", "bytes"],
        words: "The talk, with 8 readers on 1, 2, 4 and 8 CPUs: DPDK frees 29 to 72 % sooner than liburcu. Bands reach from the least to the most of the rounds' means.",
    }
    "delay-groups": "Groups: beside a reader that sleeps for a millisecond in each section" {
        scenarios: &[GROUPS], across: Across::Params(&["slow_reader"]), up: DELAY,
        words: "The talk: groups of threads that do not delay each other. Bands reach from the least to the most of the rounds' means.",
    }
    "lookups": "Lookups of the readers meanwhile" {
        scenarios: &[OWN_CORE, ONE_CORE], across: READERS, up: LOOKUPS,
        words: "The talk does not show the throughput of readers.",
    }
};
