//! Queues of delays, in real time: items that are inserted, wait, and are taken out by a task; resets; and how late an item is
//! that is inserted while a task waits for a later one.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use stillpoint::timer::Key;
use stillpoint::timer::delay_queue::DelayQueue;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::random::Random;
use stillpoint_peers::timer::{DelayQueues, Delays};

use super::measure::{self, Figures};
use super::{DELAY_QUEUE, Plan};

const ITEMS: [usize; 2] = [10_000, 1_000_000];
/// Insertions while a task waits.
const WAKES: usize = 500;
/// The delays of these insertions are shorter than this, in nanoseconds.
const SOON: u64 = 3_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Rounds of this scenario: each waits for the longest delay.
pub(super) fn rounds(plan: &Plan) -> u32 {
    if plan.has("queues") { plan.rounds.min(7) } else { 0 }
}

/// The numbers of items: those of timers that the plan has as well.
fn items(plan: &Plan) -> impl Iterator<Item = usize> + use<'_> {
    ITEMS.into_iter().filter(|items| plan.timers.contains(items))
}

/// One for each number of items, and the insertions while a task waits.
pub(super) fn stages(plan: &Plan) -> usize {
    items(plan).count() + 1
}

pub(super) fn run(plan: &Plan, progress: &Progress) -> Vec<Row> {
    let mut random = Random::new(plan.seed);
    let mut rows = Vec::new();
    for items in items(plan) {
        progress.stage(&format!("timer: a queue of {items} delays"));
        let measure = |name: &str, work: &Work| {
            let Some(mut queue) = make(name, items)? else { return Ok(Figures::new()) };
            work.measure(queue.as_mut())
        };
        let work = || Work::new(items, &mut random);
        rows.extend(measure::measured(plan, ("queues", items), rounds(plan), progress, work, measure));
    }
    progress.stage("timer: insertions while a task waits");
    let delays = || (0..WAKES).map(|_| random.draw() % SOON).collect::<Vec<u64>>();
    // tokio-util's queue belongs to the task that waits: no other task can insert.
    let measure = |name: &str, delays: &Vec<u64>| match contender(name) {
        DELAY_QUEUE => late(delays),
        _ => Ok(Figures::new()),
    };
    rows.extend(measure::measured(plan, ("queues", 1), rounds(plan), progress, delays, measure));
    rows.into_iter().map(|row| row.with("time", "real")).collect()
}

fn make(name: &str, items: usize) -> Result<Option<Box<dyn Delays>>, String> {
    Ok(Some(match contender(name) {
        DELAY_QUEUE => Box::new(Ours::new(items)?),
        "tokio-util" => Box::new(DelayQueues::new(items)?),
        _ => return Ok(None),
    }))
}

async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

struct Ours {
    queue: DelayQueue<u64>,
    keys: Vec<Key>,
    runtime: tokio::runtime::Runtime,
}

impl Ours {
    fn new(items: usize) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Self { queue: DelayQueue::with_capacity(items), keys: Vec::with_capacity(items), runtime })
    }
}

impl Delays for Ours {
    fn insert(&mut self, delays: &[u64]) -> Result<(), String> {
        for &delay in delays {
            let inserted = self.queue.insert(1, Duration::from_nanos(delay));
            self.keys.push(inserted.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn reset(&mut self, order: &[u32], delays: &[u64]) -> u64 {
        let reset = |(&which, &delay): (&u32, &u64)| {
            u64::from(self.queue.reset(&self.keys[which as usize], Duration::from_nanos(delay)))
        };
        order.iter().zip(delays).map(reset).sum()
    }

    fn take(&mut self) -> u64 {
        let queue = &self.queue;
        let (mut sum, mut turns) = (0, 0);
        self.runtime.block_on(std::future::poll_fn(|cx| {
            // Once in a while, other tasks have their turn: then the next look finds more.
            while turns < 2 {
                turns += 1;
                if let Poll::Ready(Some(item)) = pin!(queue.next(sleep_until)).poll(cx) {
                    (sum, turns) = (sum + item.into_inner(), 0);
                }
            }
            Poll::Ready(sum)
        }))
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.keys.clear();
    }
}

/// The work of a round, the same for every contender.
struct Work {
    /// No item is due before all are inserted.
    delays: Vec<u64>,
    longest: Duration,
    shuffled: Vec<u32>,
    /// Beyond the end of the round.
    later: Vec<u64>,
}

impl Work {
    fn new(items: usize, random: &mut Random) -> Self {
        // A microsecond for each insertion, and as long again in which all items become due.
        let span = items as u64 * 1_000;
        let hour = HOUR.as_nanos() as u64;
        let shuffled = random.shuffled(items);
        Self {
            delays: (0..items).map(|_| span + random.draw() % span).collect(),
            longest: Duration::from_nanos(2 * span),
            shuffled,
            later: (0..items).map(|_| hour + random.draw() % hour).collect(),
        }
    }

    fn measure(&self, queue: &mut dyn Delays) -> Result<Figures, String> {
        let items = self.delays.len() as u64;
        let (inserted, insert) = timed(|| queue.insert(&self.delays));
        inserted?;
        // Until all are due, and the clocks of all contenders have seen it.
        std::thread::sleep(self.longest + Duration::from_millis(3));
        let (taken, take) = timed(|| queue.take());
        if taken != items {
            return Err(format!("{taken} of {items} items have come out"));
        }
        queue.clear();
        queue.insert(&self.later)?;
        let (done, reset) = timed(|| queue.reset(&self.shuffled, &self.later));
        queue.clear();
        if done != items {
            return Err(format!("{done} of {items} items were reset"));
        }
        let each = |time: Duration| time.as_nanos() as f64 / items as f64;
        Ok(Figures::from([
            ("insert_ns", each(insert)),
            ("take_ns", each(take)),
            ("insert_and_take_ns", each(insert + take)),
            ("reset_ns", each(reset)),
        ]))
    }
}

fn timed<R>(call: impl FnOnce() -> R) -> (R, Duration) {
    let begin = Instant::now();
    let result = call();
    (result, begin.elapsed())
}

/// A task waits for an item of the next hour. This thread inserts items that are due sooner, one after the other. Measures how long
/// after its deadline the task has each.
fn late(delays: &[u64]) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let queue = Arc::new(DelayQueue::new());
    let refused = |error: stillpoint::timer::delay_queue::InsertError<Instant>| error.to_string();
    queue.insert(Instant::now(), HOUR).map_err(refused)?;
    let (had, has) = mpsc::channel();
    let task = runtime.spawn({
        let queue = Arc::clone(&queue);
        async move {
            while let Some(item) = queue.next(sleep_until).await {
                let late = Instant::now().saturating_duration_since(item.into_inner());
                if had.send(late).is_err() {
                    break;
                }
            }
        }
    });
    let mut late = Vec::with_capacity(delays.len());
    for &delay in delays {
        let deadline = Instant::now() + Duration::from_nanos(delay);
        queue.insert_at(deadline, deadline).map_err(refused)?;
        late.push(has.recv().map_err(|error| error.to_string())?);
        // The task goes to sleep again.
        std::thread::sleep(Duration::from_micros(100));
    }
    queue.close();
    queue.clear();
    runtime.block_on(task).map_err(|error| error.to_string())?;
    late.sort_unstable();
    let at = |of_hundred: usize| late[(late.len() - 1) * of_hundred / 100].as_nanos() as f64 / 1e3;
    Ok(Figures::from([("late_us_p50", at(50)), ("late_us_p99", at(99)), ("late_us_max", at(100))]))
}
