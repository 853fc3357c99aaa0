//! Worker threads of tokio as readers that go offline when they park, and a task that awaits grace periods.
//!
//! Tasks read by protected loads in the default domain. A load borrows a thread-local reader, so it cannot be kept across an
//! `.await`, after which the task may be on another thread. A worker that has nothing to do goes offline and parks: writers
//! issue no fences for it, however long it sleeps. Its next load brings it back by itself.
//!
//! Run it with `cargo run --example tokio_workers`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{self, RcuCell};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

const TASKS: u64 = 8;
const REQUESTS: u64 = 200;
const UPDATES: u64 = 50;

struct Price {
    version: u64,
    cents: u64,
}

impl Price {
    fn new(version: u64) -> Self {
        Self { version, cents: 100 + version }
    }
}

/// A task that serves requests. Returns the sum of its sales.
async fn serve(price: Arc<RcuCell<Price>>, task: u64) -> u64 {
    let mut sold = 0;
    for request in 0..REQUESTS {
        {
            let price = price.get().expect("there is always one");
            assert_eq!(price.cents, 100 + price.version, "it was freed too early");
            sold += price.cents;
        }
        if request % 32 == task {
            tokio::time::sleep(Duration::from_millis(1)).await; // the workers park now and then
        } else if request % 8 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sold
}

/// A task that replaces the price, and waits until no region is open that may have read the old one.
async fn update(price: Arc<RcuCell<Price>>) -> Result<u64, SynchronizeError> {
    let domain = rcu::default_domain();
    let mut last = 0;
    for version in 1..=UPDATES {
        let mut old = price.replace(Price::new(version)).expect("there is always one");
        // No thread waits here. If a region is in the way, its end wakes this task.
        domain.grace_period(old.token(domain)).await?;
        last = old.version;
        // A protected load may still hold the old price: it is freed after that.
        drop(old);
    }
    Ok(last)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let price = Arc::new(RcuCell::new(Price::new(0)));
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .on_thread_park(|| {
            rcu::offline();
        })
        .build()?;

    let sold: u64 = runtime.block_on(async {
        let mut requests = JoinSet::new();
        for task in 0..TASKS {
            requests.spawn(serve(Arc::clone(&price), task));
        }
        let updates = tokio::spawn(update(Arc::clone(&price)));
        let sold = requests.join_all().await.into_iter().sum();
        assert_eq!(updates.await.expect("it does not panic")?, UPDATES - 1);
        Ok::<_, SynchronizeError>(sold)
    })?;

    rcu::barrier()?; // all old prices have been freed
    let stats = rcu::default_domain().stats();
    println!(
        "sold for {sold} cents; {} grace periods, {} heavy fences",
        stats.grace_periods, stats.heavy_fences
    );
    assert!(sold >= 100 * TASKS * REQUESTS);
    Ok(())
}
