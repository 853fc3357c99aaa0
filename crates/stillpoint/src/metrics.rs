//! The statistics of domains, tables, pools and timers as metrics of the facade [`metrics`](::metrics), for a page that an exporter
//! renders.
//!
//! ```
//! use stillpoint::metrics::Metrics;
//! use stillpoint::table::Table;
//! use std::sync::Arc;
//!
//! static METRICS: Metrics = Metrics::new();
//!
//! let sessions: Arc<Table<u64, String>> = Arc::new(Table::new());
//! METRICS.add("sessions", &sessions, |table| table.stats()); // as long as the table is there
//!
//! // In the handler of `/metrics`, before the exporter renders:
//! METRICS.record();
//! ```
//!
//! Nothing is counted twice. Domains without a stall hook look for stalls of 100 ms; otherwise, nothing happens between two calls of
//! [`record`](Metrics::record): it calls `stats()`, and sets the facade's
//! gauges and counters. All of them have a label `name`. Those of the domains are there without an [`add`](Metrics::add):
//!
//! | metric | is |
//! |---|---|
//! | `stillpoint_domain_pending`, `_pending_bytes` | what waits to be freed |
//! | `stillpoint_domain_ready`, `_pinned` | of that, what the next poll may free, and what protected loads hold |
//! | `stillpoint_domain_delay_p50_seconds`, `_delay_p99_seconds` | how long what was freed since the domain was made had waited; 0 without a sample |
//! | `stillpoint_domain_oldest_seconds` | how long readers have held something; 0 if they hold nothing |
//! | `stillpoint_domain_readers`, `_owned`, `_silent` | registered readers, protected loads without a thread, readers that cause fences |
//! | `stillpoint_domain_fence_refused` | 1 while the kernel refuses the fence |
//! | `stillpoint_domain_retired_total`, `_freed_total` | objects |
//! | `stillpoint_domain_grace_periods_total`, `_heavy_fences_total` | the work that is done for it |
//! | `stillpoint_domain_stalls_total` | readers that were in the way for the threshold of the stall hook, or without one for 100 ms |
//! | `stillpoint_domain_handed_back_total`, `_beyond_limits_total`, `_waits_total` | what met a limit |
//! | `stillpoint_table_entries`, `_buckets`, `_longest_chain`, `_bytes` | see [`TableStats`](crate::table::TableStats) |
//! | `stillpoint_table_growths_total`, `_refused_total` | how often a table has grown, and has refused an entry for want of room |
//! | `stillpoint_pool_capacity`, `_in_use` | objects of a pool, and those that are allocated |
//! | `stillpoint_pool_misuses_total` | double frees and the like |
//! | `stillpoint_timer_timers` | timers in a wheel or a service |
//! | `stillpoint_timer_time_went_back_total` | polls with a time before that of an earlier one; a `DelayQueue` has none |

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ::metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::rcu::{Domain, Stats};

mod sealed {
    /// How a number is read.
    pub enum Number<S> {
        Gauge(fn(&S) -> f64),
        /// It only grows.
        Counter(fn(&S) -> u64),
    }

    /// A metric: its name, what it is, and its number.
    pub(super) type Metric<S> = (&'static str, &'static str, Number<S>);

    pub trait Statistics: Sized + 'static {
        const METRICS: &'static [Metric<Self>];
    }
}

use sealed::Metric;
use sealed::Number::{Counter, Gauge};

/// What `stats()` of a domain, a table, a pool, a wheel or a timer service returns: see the [example](self).
pub trait Statistics: sealed::Statistics {}

impl<S: sealed::Statistics> Statistics for S {}

fn delay(stats: &Stats, percent: f64) -> f64 {
    stats.delays.percentile(percent).unwrap_or_default().as_secs_f64()
}

/// Rows `Kind name: "What it is.", number;`, whose names have the prefix before them.
macro_rules! metrics {
    ($of:ty, $prefix:literal: $($kind:ident $name:ident: $text:literal, $number:expr;)*) => {
        impl sealed::Statistics for $of {
            const METRICS: &'static [Metric<Self>] =
                &[$((concat!($prefix, stringify!($name)), $text, $kind($number)),)*];
        }
    };
}

metrics! { Stats, "stillpoint_domain_":
    Gauge pending: "Objects that wait to be freed.", |s| s.pending as f64;
    Gauge pending_bytes: "Bytes that wait to be freed.", |s| s.pending_bytes as f64;
    Gauge ready: "Waiting objects that nobody holds.", |s| s.ready as f64;
    Gauge pinned: "Waiting objects that protected loads hold.", |s| s.pinned as f64;
    Gauge oldest_seconds: "How long readers have held a waiting object.",
        |s| s.oldest.unwrap_or_default().as_secs_f64();
    Gauge delay_p50_seconds: "From retirement to free: the median since the domain was made.",
        |s| delay(s, 50.0);
    Gauge delay_p99_seconds: "From retirement to free: the 99th percentile since the domain was made.",
        |s| delay(s, 99.0);
    Gauge readers: "Registered readers.", |s| s.readers as f64;
    Gauge owned: "Protected loads that are bound to no thread.", |s| s.owned as f64;
    Gauge silent: "Readers for which heavy fences are issued.", |s| s.silent as f64;
    Gauge fence_refused: "1 while the kernel refuses the heavy fence, and nothing is freed.",
        |s| f64::from(u8::from(s.fence_error.is_some()));
    Counter retired_total: "Objects retired.", |s| s.retired;
    Counter freed_total: "Objects freed.", |s| s.freed;
    Counter grace_periods_total: "Grace periods started.", |s| s.grace_periods;
    Counter heavy_fences_total: "Heavy fences issued.", |s| s.heavy_fences;
    Counter stalls_total: "Readers and refused fences that were in the way for the threshold.", |s| s.stalls;
    Counter handed_back_total: "Retirements that a limit refused.", |s| s.handed_back;
    Counter beyond_limits_total: "Objects beyond a limit.", |s| s.beyond_limits;
    Counter waits_total: "Retirements that waited for room.", |s| s.waits;
}

#[cfg(feature = "table")]
metrics! { crate::table::TableStats, "stillpoint_table_":
    Gauge entries: "Entries.", |s| s.entries as f64;
    Gauge buckets: "Buckets.", |s| s.buckets as f64;
    Gauge longest_chain: "Buckets of the longest chain.", |s| s.longest_chain as f64;
    Gauge bytes: "Address space of buckets and entries.", |s| s.bytes as f64;
    Counter growths_total: "How often it has grown.", |s| s.growths as u64;
    Counter refused_total: "Entries that found no room.", |s| s.refused as u64;
}

#[cfg(all(feature = "pool", target_os = "linux"))]
metrics! { crate::pool::audit::PoolStats, "stillpoint_pool_":
    Gauge capacity: "Objects of the pool.", |s| s.capacity as f64;
    Gauge in_use: "Allocated objects.", |s| s.in_use as f64;
    Counter misuses_total: "Double frees and the like.", |s| s.misuses as u64;
}

#[cfg(feature = "timer")]
metrics! { crate::timer::WheelStats, "stillpoint_timer_":
    Gauge timers: "Timers.", |s| s.timers as f64;
    Counter time_went_back_total: "Polls with an earlier time.", |s| s.time_went_back;
}

/// Describes the metrics of one kind to the recorder.
fn describe<S: Statistics>() {
    for &(name, text, ref number) in S::METRICS {
        match number {
            Gauge(_) => describe_gauge!(name, text),
            Counter(_) => describe_counter!(name, text),
        }
    }
}

fn set<S: Statistics>(name: &str, stats: &S) {
    for (metric, _, number) in S::METRICS {
        match number {
            Gauge(number) => gauge!(*metric, "name" => name.to_owned()).set(number(stats)),
            Counter(number) => counter!(*metric, "name" => name.to_owned()).absolute(number(stats)),
        }
    }
}

/// Sets the metrics of one table, pool or service. False if that is gone.
type Source = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a page of metrics shows: all domains, and what was [added](Metrics::add).
#[derive(Default)]
pub struct Metrics {
    sources: Mutex<Vec<Source>>,
}

impl Metrics {
    /// Shows the domains, and nothing else yet.
    pub const fn new() -> Self {
        Self { sources: Mutex::new(Vec::new()) }
    }

    /// From now on, [`record`](Metrics::record) also calls `stats` with what `owner` points to, and sets the metrics of what it
    /// returns, with this name as their label. Keeps only a `Weak` of `owner`, and forgets it when the last `Arc` is gone.
    ///
    /// Install the recorder before: this call describes the metrics to it.
    pub fn add<A: ?Sized + Send + Sync + 'static, S: Statistics>(
        &self,
        name: impl Into<String>,
        owner: &Arc<A>,
        stats: impl Fn(&A) -> S + Send + Sync + 'static,
    ) {
        let owner = Arc::downgrade(owner);
        self.add_with(name, move || owner.upgrade().map(|owner| stats(&owner)));
    }

    /// As [`add`](Metrics::add), for what is in no `Arc`, such as a static: `stats` is called until it returns `None`, and
    /// perhaps once more by a thread that records at the same time.
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use stillpoint::metrics::Metrics;
    /// use stillpoint::table::Table;
    ///
    /// static METRICS: Metrics = Metrics::new();
    /// static SESSIONS: LazyLock<Table<u64, String>> = LazyLock::new(Table::new);
    ///
    /// METRICS.add_with("sessions", || Some(SESSIONS.stats()));
    /// METRICS.record();
    /// ```
    pub fn add_with<S: Statistics>(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> Option<S> + Send + Sync + 'static,
    ) {
        describe::<S>();
        let name = name.into();
        let source = move || stats().map(|stats| set(&name, &stats)).is_some();
        self.sources().push(Arc::new(source));
    }

    /// Sets the metrics of all [domains](Domain::all) and of what was added, to what their `stats()` say now.
    ///
    /// Takes as long as these calls: a domain's looks at all its readers. Allocates; may run at any time on any thread, also several
    /// times at once. A domain that has ended, and what is gone, keep their last numbers until the exporter forgets them. Of domains
    /// of one name, the gauges show one, and the counters the largest; so if a table is added under the name of one that is gone, its counts
    /// show only once they exceed the old ones. If the last handle of a domain, or the last `Arc` of an
    /// owner, is dropped meanwhile, this call drops what they own.
    ///
    /// # Panics
    /// With the panic of a function that was added, or of a destructor.
    pub fn record(&self) {
        describe::<Stats>();
        for domain in Domain::all() {
            set(domain.name(), &domain.stats());
        }
        // Not under the lock: the functions may add others.
        let sources = self.sources().clone();
        for source in sources {
            if !source() {
                self.sources().retain(|other| !Arc::ptr_eq(other, &source));
            }
        }
    }

    fn sources(&self) -> std::sync::MutexGuard<'_, Vec<Source>> {
        // Nothing panics under the lock but the allocator.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("added", &self.sources().len()).finish()
    }
}
