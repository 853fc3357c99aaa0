//! Reports about readers that delay a grace period: what they say about the thread, and when they come.

mod activity;
mod looking;
mod misbehaving;
mod noticing;
mod once;
mod silent;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::wait::Stall;
use stillpoint::rcu::{Domain, DomainBuilder};

use crate::LONG;

const THRESHOLD: Duration = Duration::from_millis(5);

/// What a hook was called with.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<Stall>>>);

impl Reports {
    /// A domain whose hook keeps its reports here.
    fn of_domain(&self, threshold: Duration) -> DomainBuilder {
        let reports = self.clone();
        Domain::builder().name("routes").stall_hook(threshold, move |report| reports.push(report))
    }

    fn push(&self, report: &Stall) {
        self.0.lock().expect("no test panics with it").push(report.clone());
    }

    fn all(&self) -> Vec<Stall> {
        self.0.lock().expect("no test panics with it").clone()
    }

    fn len(&self) -> usize {
        self.all().len()
    }
}

/// Runs `test` while another thread, named `sleepy`, is inside a guard. The thread leaves when the argument of `test`
/// is dropped, or sent to.
fn while_pinned<R>(domain: &Domain, test: impl FnOnce(Sender<()>) -> R) -> R {
    let (held, is_held) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let holds = move || {
            let reader = domain.reader();
            let guard = reader.pin();
            held.send(()).expect("the test waits for it");
            let _ = is_done.recv();
            drop(guard);
        };
        thread::Builder::new().name("sleepy".into()).spawn_scoped(scope, holds).expect("there is room");
        is_held.recv().expect("the thread runs");
        test(done)
    })
}

/// Waits for a long time, until `found` is true.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "it does not come");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A thread that waits for the domain, and says when it is done.
fn synchronizes(domain: &Domain) -> Receiver<()> {
    let (done, is_done) = mpsc::channel();
    let domain = domain.clone();
    thread::spawn(move || {
        domain.synchronize_timeout(LONG).expect("the reader leaves");
        let _ = done.send(());
    });
    is_done
}
