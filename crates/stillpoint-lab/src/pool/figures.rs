//! The rates of the RFC, by burst and by objects kept.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Figure, Published, Up};

const RATE: Up = Up::more("objects_per_s", "objects a second");
const PACKETS: Up = Up::more("packets_per_s", "packets a second");
const BURSTS: Across = Across::Params(&["get", "put"]);
const COMMON: Figure = Figure {
    experiment: "pool",
    up: RATE,
    beside: &["block", "object_bytes"],
    named: &["cache"],
    ..Figure::PLAIN
};
/// The published rates of this many cores.
macro_rules! rfc {
    ($cores:literal, $points:expr) => {
        Published::at_names("RFC: bucket, least", &[("cores", $cores)], &$points)
    };
}

/// The published rates of blocks of 15: 15 objects go out at a time, and 1 or 15 come back. They are also shown beside blocks of 31,
/// of which 1 or 31 objects come back.
macro_rules! blocks {
    ($cores:literal, $singly:literal, $together:literal) => {
        Published::at_names(
            "RFC: bucket, blocks of 15, least",
            &[("cores", $cores)],
            &[
                ("get 15, put 1", $singly),
                ("get 15, put 15", $together),
                ("get 31, put 1", $singly),
                ("get 31, put 31", $together),
            ],
        )
    };
}

const WORDS: &str = "The RFC's blocks held 15 objects (buckets of 32 KiB, objects of 2 KiB); those of DPDK as packaged today hold 31, or 15 objects of 4 KiB.";

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "pool": "Objects out and back" {
        scenarios: &["plain"], across: BURSTS,
        published: &[
            rfc!("1", [("get 15, put 1", 112e6), ("get 15, put 15", 353e6)]),
            rfc!("2", [("get 15, put 1", 225e6), ("get 15, put 15", 704e6)]),
            rfc!("4", [("get 15, put 1", 425e6), ("get 15, put 15", 1336e6)]),
        ],
        words: WORDS,
    }
    "pool-contiguous": "Blocks of contiguous objects out, objects back" {
        scenarios: &["contiguous"], across: BURSTS,
        published: &[blocks!("1", 123e6, 374e6), blocks!("2", 245e6, 751e6), blocks!("4", 462e6, 1432e6)],
        words: WORDS,
    }
    "pool-bulks": "Objects out and back in the bulks of DPDK's own test" {
        scenarios: &["bulks"], across: BURSTS,
    }
    "pool-single": "One object out and back" { scenarios: &["single"], across: BURSTS }
    "pool-private": "Objects out and back, each thread for itself" {
        scenarios: &["private"], across: Across::param("cores", "CPUs"),
    }
    "pool-transmit": "Packets from a mempool to DPDK's null device" {
        scenarios: &[super::TRANSMIT], across: Across::param("cores", "CPUs"), up: PACKETS,
    }
    "pool-transmit-huge": "Packets from a mempool in huge pages to DPDK's null device" {
        scenarios: &[super::TRANSMIT_HUGE], across: Across::param("cores", "CPUs"), up: PACKETS,
    }
    "pool-pipe": "Objects from producer to consumer" { scenarios: &["producer-consumer"], across: BURSTS }
};
