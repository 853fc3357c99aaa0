//! Rates of tables, and their memory.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Better, Figure, Up};

use super::mixes::{BUSTLE, CONC_MAP_BENCH};
use super::service::SERVICE;

const COMMON: Figure = Figure {
    experiment: "table",
    beside: &["value_bytes", "hasher", "percent", "capacity", "prefill"],
    ..Figure::PLAIN
};

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "table": "Operations of a hash table" {
        scenarios: &["uniform", "zipf"],
        across: Across::Metrics(&[
            ("lookups_per_s", "lookups"),
            ("bulk_lookups_per_s", "in bursts"),
            ("get_or_insert_per_s", "get_or_insert"),
            ("mix_90_10_per_s", "90/10"),
            ("mix_50_50_per_s", "50/50"),
            ("insert_remove_per_s", "insert+remove"),
            ("updates_per_s", "updates"),
        ]),
        up: Up::more("", "operations a second"),
        words: "Lookups, bursts of 32, and get_or_insert of present keys are in tables as they were filled. 90/10 and 50/50 mix lookups with removals and insertions. Insert+remove: a key is removed and inserted again. Updates make a new value from the old one.",
    }
    "table-growth": "Insertions while the table grows" {
        scenarios: &["growth"],
        across: Across::Metrics(&[
            ("insert_ns_mean", "mean"),
            ("insert_ns_p9999", "99.99 %"),
            ("insert_ns_p99999", "99.999 %"),
            ("insert_ns_max", "longest"),
        ]),
        up: Up::less("", "nanoseconds for an insertion"),
    }
    "table-memory": "Memory of a table" {
        scenarios: &["growth"],
        across: Across::Metrics(&[
            ("bytes_per_entry", "full"),
            ("bytes_per_entry_halved", "after half was removed"),
        ]),
        up: Up { logarithmic: false, ..Up::less("", "bytes for each entry") },
    }
    "table-mixes": "Mixes of other harnesses" {
        scenarios: &[BUSTLE, CONC_MAP_BENCH], across: Across::Params(&["mix"]),
        up: Up::more("ops_per_s", "operations a second"),
    }
    "table-service": "A web service's map" {
        scenarios: &[SERVICE], across: Across::Params(&["mix", "entries"]),
        up: Up::more("ops_per_s", "operations a second"),
    }
    "table-service-waiting": "Removed entries of a web service's map that wait to be freed" {
        scenarios: &[SERVICE], across: Across::Params(&["mix", "entries"]),
        up: Up {
            better: Better::Neither,
            ..Up::more("waiting_most", "entries, at the end of the worst round")
        },
    }
};
