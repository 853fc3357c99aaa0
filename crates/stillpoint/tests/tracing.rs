//! Events of the facade `tracing`. `cargo test -p stillpoint --features tracing --test tracing`.

#![cfg(feature = "tracing")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use stillpoint::rcu::{Domain, DomainBuilder};
use stillpoint::table::Table;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Fields = BTreeMap<&'static str, String>;

/// Keeps the library's events, and calls something for each.
struct Kept {
    events: Arc<Mutex<Vec<Fields>>>,
    then: Box<dyn Fn() + Send + Sync>,
}

struct Reads<'f>(&'f mut Fields);

impl Visit for Reads<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "stillpoint"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        unreachable!("there are no spans");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_eq!(*event.metadata().level(), Level::WARN);
        let mut fields = Fields::new();
        event.record(&mut Reads(&mut fields));
        self.events.lock().unwrap().push(fields);
        (self.then)();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The events of `body` on this thread. Its argument is their number so far.
fn events_of(then: impl Fn() + Send + Sync + 'static, body: impl FnOnce(&dyn Fn() -> usize)) -> Vec<Fields> {
    let events = Arc::<Mutex<Vec<Fields>>>::default();
    let kept = Kept { events: Arc::clone(&events), then: Box::new(then) };
    tracing::subscriber::with_default(kept, || body(&|| events.lock().unwrap().len()));
    let events = std::mem::take(&mut *events.lock().unwrap());
    events
}

/// Runs `body` while another thread, of this name, has a region of the domain open.
fn with_a_region(domain: &Domain, name: &str, body: impl FnOnce()) {
    thread::scope(|scope| {
        let (opened, is_open) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let region = move || {
            let reader = domain.reader();
            let _region = reader.pin();
            opened.send(()).unwrap();
            let _ = ends.recv();
        };
        thread::Builder::new().name(name.into()).spawn_scoped(scope, region).unwrap();
        is_open.recv().unwrap();
        body();
        drop(end);
    });
}

fn stalled(builder: DomainBuilder, then: impl Fn() + Send + Sync + 'static) -> Vec<Fields> {
    let domain = builder.build().unwrap();
    events_of(then, |events| {
        with_a_region(&domain, "sleeper", || {
            // Each wait is one grace period. On a busy machine, one may end before it has looked.
            while events() == 0 {
                let waited = domain.synchronize_timeout(Duration::from_millis(250));
                waited.expect_err("a region is in the way");
            }
        });
    })
}

#[test]
fn a_stall_is_an_event_without_a_hook() {
    let events = stalled(Domain::builder().name("routes"), || ());
    let [event] = &events[..] else { panic!("one section, one event: {events:?}") };
    assert_eq!((&*event["domain"], &*event["thread_name"]), ("routes", "sleeper"));
    assert!(event["message"].contains("`sleeper`) has a region open in domain `routes`"), "{event:?}");
    for field in ["thread_id", "activity", "waited", "pending", "pending_bytes"] {
        assert!(event.contains_key(field), "no {field} in {event:?}");
    }
    assert!(!event.contains_key("refused"), "{event:?}");
}

#[test]
fn a_hook_is_called_as_well() {
    let (stalls, received) = mpsc::channel();
    let hook = move |stall: &stillpoint::rcu::wait::Stall| drop(stalls.send(stall.to_string()));
    let builder = Domain::builder().stall_hook(Duration::from_millis(1), hook);
    let events = stalled(builder, || ());
    let hooked: Vec<_> = received.try_iter().collect();
    assert_eq!(events.len(), 1);
    assert_eq!(hooked, [events[0]["message"].clone()]);
}

/// A subscriber is foreign code: it may use the library, and must not wait in it.
#[test]
fn a_subscriber_may_use_the_library() {
    use stillpoint::rcu::{self, RcuCell};
    let cell = RcuCell::new(1);
    let waits = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&waits);
    let events = stalled(Domain::builder(), move || {
        cell.set(2);
        drop(rcu::pin());
        said.lock().unwrap().push(rcu::default_domain().synchronize().is_err());
    });
    assert_eq!(events.len(), 1);
    assert_eq!(*waits.lock().unwrap(), [true], "a wait is refused");
}

/// Of nine refusals, the first, the second, the fourth and the eighth are events.
#[test]
fn a_full_domain_says_so_a_logarithmic_number_of_times() {
    let domain = Domain::builder().name("small").max_pending(1).build().unwrap();
    let cell = domain.cell(0);
    let reader = domain.reader();
    let region = reader.pin();
    let events = events_of(
        || (),
        |_| {
            let mut reclaimer = domain.reclaimer();
            reclaimer.retire(cell.replace(1).unwrap()).unwrap();
            let mut object = cell.replace(2).unwrap();
            for _ in 0..9 {
                object = reclaimer.retire(object).expect_err("one waits").into_inner();
            }
            drop(region);
        },
    );
    let counts: Vec<_> = events.iter().map(|event| &*event["handed_back"]).collect();
    assert_eq!(counts, ["1", "2", "4", "8"]);
    assert!(events[0]["message"].contains("domain `small`"), "{events:?}");
    assert_eq!((&*events[0]["pending"], &*events[0]["domain"]), ("1", "small"));
}

/// Of nine refusals, the first, the second, the fourth and the eighth are events.
#[test]
fn a_full_table_says_so_a_logarithmic_number_of_times() {
    let domain = Domain::builder().name("small").build().unwrap();
    let table: Table<u64, u64> = Table::builder_in(&domain).name("flows").max_len(1).build().unwrap();
    table.insert(0, 0).unwrap();
    let events =
        events_of(|| (), |_| (1..10).for_each(|key| _ = table.insert(key, 0).expect_err("one fits")));
    let counts: Vec<_> = events.iter().map(|event| &*event["refused"]).collect();
    assert_eq!(counts, ["1", "2", "4", "8"]);
    assert!(events[0]["message"].contains("table `flows` of domain `small`"), "{events:?}");
    for (field, value) in [("domain", "small"), ("table", "flows"), ("entries", "1"), ("waiting", "0")] {
        assert_eq!(events[0][field], value);
    }
    assert!(events[0].contains_key("thread_id") && events[0].contains_key("thread_name"), "{events:?}");
}

/// The subscriber waits for a thread that asks for the same key. While the value is made, that thread would wait for the subscriber.
#[test]
fn a_refused_value_is_an_event_when_nobody_waits_for_it_any_more() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::builder_in(&domain).max_len(1).build().unwrap();
    table.insert(0, 0).unwrap();
    let table = Arc::new(table);
    let (other, of_other) = (Arc::clone(&table), domain.clone());
    let asks = move || {
        let (table, domain) = (Arc::clone(&other), of_other.clone());
        let asked = thread::spawn(move || {
            let mut reader = domain.reader();
            let refused = table.reader(&mut reader).get_or_init(1, || 1).is_err();
            refused
        });
        assert!(asked.join().unwrap(), "there is no room for it either");
    };
    let events = events_of(asks, |_| {
        let mut reader = domain.reader();
        table.reader(&mut reader).get_or_init(1, || 1).expect_err("one fits");
    });
    assert_eq!(events.iter().map(|event| &*event["refused"]).collect::<Vec<_>>(), ["1"]);
    assert_eq!(table.stats().refused, 2);
}
