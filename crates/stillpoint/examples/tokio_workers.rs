//! Worker threads of tokio as QSBR readers, and a task that awaits grace periods.
//!
//! Each worker has a reader in a thread-local variable. A task reads in a closure, so that it cannot keep a reference
//! across an `.await`, after which it may be on another thread. After each request it reports that the thread holds
//! nothing. A worker that has nothing to do goes offline and parks: writers do not wait for it, however long it sleeps.
//! It comes back online at its next read, so a thread that never reads is never waited for either.
//!
//! Run it with `cargo run --example tokio_workers`.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rcu::{Domain, OfflineReader, QsbrReader, RcuCell, SynchronizeError};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

const TASKS: u64 = 8;
const REQUESTS: u64 = 200;
const UPDATES: u64 = 50;

/// The reader of a thread.
enum Worker {
    Online(QsbrReader),
    Offline(OfflineReader),
    /// The thread has never read.
    New,
}

thread_local! {
    static WORKER: RefCell<Worker> = const { RefCell::new(Worker::New) };
}

impl Worker {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Worker::New)
    }

    fn go_online(&mut self, domain: &Domain) {
        *self = match self.take() {
            Worker::New => Worker::Online(domain.qsbr_reader()),
            Worker::Offline(reader) => Worker::Online(reader.go_online()),
            online => online,
        };
    }

    fn go_offline(&mut self) {
        *self = match self.take() {
            Worker::Online(reader) => Worker::Offline(reader.go_offline()),
            other => other,
        };
    }
}

/// Runs `function` with the reader of this thread. References cannot leave the closure.
fn read<R>(domain: &Domain, function: impl FnOnce(&QsbrReader) -> R) -> R {
    WORKER.with(|worker| {
        if !matches!(*worker.borrow(), Worker::Online(_)) {
            worker.borrow_mut().go_online(domain);
        }
        match &*worker.borrow() {
            Worker::Online(reader) => function(reader),
            _ => unreachable!("it was brought online"),
        }
    })
}

/// Reports that this thread holds nothing. Panics within [`read`], where the reader is borrowed.
fn quiescent() {
    WORKER.with_borrow_mut(|worker| {
        if let Worker::Online(reader) = worker {
            reader.quiescent();
        }
    });
}

struct Price {
    version: u64,
    cents: u64,
}

impl Price {
    fn new(version: u64) -> Self {
        Self { version, cents: 100 + version }
    }
}

struct Shop {
    domain: Domain,
    price: RcuCell<Price>,
}

/// A task that serves requests. Returns the sum of its sales.
async fn serve(shop: Arc<Shop>, task: u64) -> u64 {
    let mut sold = 0;
    for request in 0..REQUESTS {
        sold += read(&shop.domain, |reader| {
            let price = shop.price.load(reader).expect("there is always one");
            assert_eq!(price.cents, 100 + price.version, "it was freed too early");
            price.cents
        });
        quiescent();
        if request % 32 == task {
            tokio::time::sleep(Duration::from_millis(1)).await; // the workers park now and then
        } else if request % 8 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sold
}

/// A task that replaces the price, and waits until no worker reads the old one.
async fn update(shop: Arc<Shop>) -> Result<(), SynchronizeError> {
    for version in 1..=UPDATES {
        let mut old = shop.price.replace(Price::new(version)).expect("there is always one");
        // No thread waits here. The last worker that may read the old price wakes this task.
        shop.domain.grace_period(old.token(&shop.domain)).await?;
        // This also checks for protected loads, of which there are none here.
        let old = old.try_into_box().ok().expect("every worker has passed");
        assert_eq!(old.version, version - 1);
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::builder().name("shop").build()?;
    let shop = Arc::new(Shop { price: domain.cell(Price::new(0)), domain });
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .on_thread_park(|| WORKER.with_borrow_mut(Worker::go_offline))
        .build()?;

    let sold: u64 = runtime.block_on(async {
        let mut requests = JoinSet::new();
        for task in 0..TASKS {
            requests.spawn(serve(Arc::clone(&shop), task));
        }
        let updates = tokio::spawn(update(Arc::clone(&shop)));
        let sold = requests.join_all().await.into_iter().sum();
        // From here on the workers have nothing to read. Only workers that never park are waited for.
        updates.await.expect("it does not panic")?;
        Ok::<_, SynchronizeError>(sold)
    })?;

    println!("sold for {sold} cents at {} prices", shop.domain.stats().freed + 1);
    assert!(sold >= 100 * TASKS * REQUESTS);
    assert_eq!((shop.domain.stats().freed, shop.domain.stats().pending), (UPDATES, 0));
    Ok(())
}
