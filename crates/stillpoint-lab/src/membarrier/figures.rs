//! The figures of the poster, measured here.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};

const LATENCY: Up =
    Up::less("latency_us_p50", "median latency, in µs").between("latency_us_least", "latency_us_most");
const COMMON: Figure = Figure { experiment: "membarrier", beside: &["readers"], ..Figure::PLAIN };

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "barriers-by-receivers": "Latency of a barrier, by receivers" {
        scenarios: &["receivers"], across: Across::param("threads", "threads that receive it"), up: LATENCY,
        words: "The poster, on 144 logical CPUs: flat grows linearly, with a jump where second hyperthreads begin; the tree grows roughly with the logarithm. Here the threads share the CPUs of the machine, and messages are signals, so only the shapes of the curves can be compared.",
    }
    "barriers-by-initiators": "Latency of a barrier, by concurrent initiators" {
        scenarios: &["initiators"], across: Across::param("initiators", "concurrent initiators"), up: LATENCY,
        words: "The poster: the flat variants grow linearly; the tree has visible jitter. The bands here reach from the least to the most of all rounds.",
    }
    "readers-by-frequency": "What readers lose to grace periods" {
        scenarios: &["readers"],
        across: Across::Numbers {
            of: Number::Metric("synchronized_per_s"),
            title: "grace periods a second",
            logarithmic: true,
        },
        up: Up {
            metric: "reader_loss_percent",
            band: Some(("reader_loss_percent_q1", "reader_loss_percent_q3")),
            title: "throughput lost, in %",
            logarithmic: false,
            better: Better::Neither,
        },
        beside: &["readers", "synchronize_per_s"],
        words: "The poster, against the standard implementation at the same frequency: under 1.25 % lost up to 10 kHz, under 10 % at flat's highest frequency, under 15 % at the tree's.",
    }
};
