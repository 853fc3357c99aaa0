//! Deliveries that failed are tried again later: two tasks serve one queue of delays, any task may add to it, and the program
//! ends when all deliveries are made.
//!
//! Run it with `cargo run --example retries --features delay-queue`.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillpoint::timer::delay_queue::DelayQueue;

/// A message, and how often it could not be delivered.
struct Delivery {
    to: &'static str,
    failures: u32,
}

/// How the queue sleeps: by tokio's clock.
async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

/// Serves the queue until it has ended. Returns what was delivered.
async fn serve(queue: Arc<DelayQueue<Delivery>>, open: Arc<AtomicU32>) -> Vec<&'static str> {
    let mut delivered = Vec::new();
    while let Some(due) = queue.next(sleep_until).await {
        let mut delivery = due.into_inner();
        if delivery.failures < 2 {
            // Once more, after 2 ms, then after 4 ms.
            delivery.failures += 1;
            let delay = Duration::from_millis(1 << delivery.failures);
            queue.insert(delivery, delay).expect("the queue is open as long as a delivery is");
            continue;
        }
        delivered.push(delivery.to);
        if open.fetch_sub(1, Ordering::Relaxed) == 1 {
            queue.close(); // both tasks see the end
        }
    }
    delivered
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        let (queue, open) = (Arc::new(DelayQueue::new()), Arc::new(AtomicU32::new(3)));
        let servers = [(); 2].map(|()| tokio::spawn(serve(Arc::clone(&queue), Arc::clone(&open))));

        let now = |to| Delivery { to, failures: 0 };
        let withdrawn = queue.insert(now("nobody"), Duration::from_secs(3_600))?;
        for to in ["Ada", "Grace", "Barbara"] {
            queue.insert(now(to), Duration::ZERO)?; // wakes a server that sleeps for longer
        }
        assert!(queue.remove(&withdrawn).is_some(), "it was not due");

        let mut delivered = Vec::new();
        for server in servers {
            delivered.extend(server.await?);
        }
        delivered.sort_unstable();
        println!("delivered to {delivered:?}");
        assert_eq!(delivered, ["Ada", "Barbara", "Grace"]);
        Ok(())
    })
}
