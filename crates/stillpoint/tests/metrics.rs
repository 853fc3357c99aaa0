//! Statistics as metrics. `cargo test -p stillpoint --features metrics --test metrics`.

#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use stillpoint::metrics::Metrics;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;
use stillpoint::timer::Wheel;

type Numbers = Arc<Mutex<BTreeMap<(String, String), f64>>>;

/// Keeps the last number of each metric, by its name and the value of its label, and which names were described.
#[derive(Default)]
struct Page {
    numbers: Numbers,
    described: Arc<Mutex<BTreeMap<String, String>>>,
}

struct Cell(Numbers, (String, String));

impl Cell {
    fn of(page: &Page, key: &Key) -> Arc<Self> {
        let labels: Vec<_> = key.labels().collect();
        let [label] = labels[..] else { panic!("one label, not {labels:?}") };
        assert_eq!(label.key(), "name");
        Arc::new(Self(Arc::clone(&page.numbers), (key.name().to_owned(), label.value().to_owned())))
    }

    fn put(&self, number: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), number);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn set(&self, number: f64) {
        self.put(number);
    }
}

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        unreachable!("the library has counted");
    }

    fn absolute(&self, number: u64) {
        self.put(number as f64);
    }
}

impl Page {
    fn describe(&self, key: KeyName, text: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), text.into_owned());
    }

    fn number(&self, metric: &str, name: &str) -> Option<f64> {
        self.numbers.lock().unwrap().get(&(metric.to_owned(), name.to_owned())).copied()
    }
}

impl Recorder for Page {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, text: SharedString) {
        self.describe(key, text);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, text: SharedString) {
        self.describe(key, text);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("there are none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Cell::of(self, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Cell::of(self, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("there are none");
    }
}

#[test]
fn a_page_shows_what_statistics_say() {
    let page = Page::default();
    metrics::with_local_recorder(&page, || {
        let domain = Domain::builder().name("routes").max_pending(1).build().unwrap();
        let cells = [domain.cell(1), domain.cell(2)];
        let reader = domain.reader();
        let held = cells[0].protect(&reader).unwrap();
        let mut reclaimer = domain.reclaimer();
        reclaimer.retire(cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        let refused =
            reclaimer.retire(cells[1].take().unwrap()).expect_err("one waits, and that is the limit");

        let metrics = Metrics::new();
        let flows: Table<u64, u64> = Table::new();
        flows.insert(1, 2).unwrap();
        let flows = Arc::new(flows);
        metrics.add("flows", &flows, |flows| flows.stats());
        let wheel = Arc::new(Mutex::new(Wheel::new(0)));
        wheel.lock().unwrap().add(30, "timer").unwrap();
        metrics.add_with("wheel", move || Some(wheel.lock().unwrap().stats()));
        metrics.record();

        for (metric, name, number) in [
            ("stillpoint_domain_pending", "routes", 1.0),
            ("stillpoint_domain_pending_bytes", "routes", 4.0),
            ("stillpoint_domain_pinned", "routes", 1.0),
            ("stillpoint_domain_ready", "routes", 0.0),
            ("stillpoint_domain_readers", "routes", 1.0),
            ("stillpoint_domain_fence_refused", "routes", 0.0),
            ("stillpoint_domain_retired_total", "routes", 1.0),
            ("stillpoint_domain_freed_total", "routes", 0.0),
            ("stillpoint_domain_handed_back_total", "routes", 1.0),
            ("stillpoint_domain_stalls_total", "routes", 0.0),
            ("stillpoint_table_entries", "flows", 1.0),
            ("stillpoint_table_refused_total", "flows", 0.0),
            ("stillpoint_timer_timers", "wheel", 1.0),
        ] {
            assert_eq!(page.number(metric, name), Some(number), "{metric} of {name}");
        }
        assert!(page.number("stillpoint_domain_oldest_seconds", "routes").is_some_and(|oldest| oldest > 0.0));
        for (metric, _) in page.numbers.lock().unwrap().keys() {
            assert!(page.described.lock().unwrap().contains_key(metric), "{metric} has no description");
        }

        drop(held);
        reclaimer.poll();
        reclaimer.retire(refused.into_inner()).unwrap();
        flows.insert(2, 3).unwrap();
        metrics.record();
        assert_eq!(page.number("stillpoint_domain_freed_total", "routes"), Some(1.0));
        assert_eq!(page.number("stillpoint_domain_retired_total", "routes"), Some(2.0));
        assert_eq!(page.number("stillpoint_table_entries", "flows"), Some(2.0));

        // Only a `Weak` is kept.
        assert_eq!(Arc::into_inner(flows).map(|flows| flows.len()), Some(2));
        metrics.record();
        assert_eq!(format!("{metrics:?}"), "Metrics { added: 1 }");
    });
}

#[test]
fn what_is_gone_is_asked_once_more() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let metrics = Metrics::new();
    let wheel = Arc::new(Mutex::new(Wheel::<u8>::new(0)));
    let weak = Arc::downgrade(&wheel);
    metrics.add_with("wheel", move || {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Some(weak.upgrade()?.lock().unwrap().stats())
    });
    metrics.record();
    drop(wheel);
    for _ in 0..3 {
        metrics.record();
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 2, "once while it was there, and once after it had gone");
}

/// A function may add another one, and record, since it is not called under a lock.
#[test]
fn a_source_may_add_another() {
    static METRICS: Metrics = Metrics::new();
    let is_first = AtomicUsize::new(0);
    METRICS.add_with("outer", move || {
        if is_first.fetch_add(1, Ordering::Relaxed) == 0 {
            METRICS.add_with("inner", || Some(Wheel::<u8>::new(0).stats()));
            METRICS.record();
        }
        Some(Wheel::<u8>::new(0).stats())
    });
    METRICS.record();
    assert_eq!(format!("{METRICS:?}"), "Metrics { added: 2 }");
}
