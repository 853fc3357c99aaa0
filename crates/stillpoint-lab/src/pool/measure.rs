//! In the child process: makes the pools, and measures slices of them in turn.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::experiment::threads::on_each;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_harness::stats::median;
use stillpoint_peers::pool::{self, OBJECT, PoolContender, PoolThread};

use super::child::Order;
use super::ours::{Bare, Typed};
use super::pipe::{BULK, Pipe};
use super::plan::{CACHE, Plan, SMALL_BLOCK, Setting};
use super::watch::Report;
use super::{CONTIGUOUS, HAVE_BLOCKS};
use crate::experiment::{OnHugePages, prepare_child};
use crate::peers;

/// A pool, and the name of its rows.
struct Entrant {
    name: String,
    pool: Box<dyn PoolContender>,
}

pub(super) fn run(order: &Order, report: &Sender<Report>) -> Result<(), String> {
    let OnHugePages { plan, megabytes, huge_pages } = &order.on;
    if plan.transmits() {
        let cpu = *plan.cpus.first().ok_or("no CPU was chosen to measure on")?;
        if let Err(why) = pool::initialise_transmission(cpu, queues(plan), *huge_pages) {
            // As below.
            let _ = report.send(Report::Measured(Vec::new(), vec![format!("left out: {why}")]));
            return Ok(());
        }
        cpus::pin(cpu)?;
    } else {
        prepare_child(&plan.contenders, &plan.cpus, *megabytes, *huge_pages)?;
    }
    let progress = Progress::new(plan.settings.len());
    let mut stage = "";
    let settings = plan.settings.iter().enumerate().skip(order.first);
    for (number, setting) in settings.take_while(|_| !interrupt::requested()) {
        if setting.scenario != stage {
            stage = &setting.scenario;
            progress.stage(&format!("pool: {stage}"));
        }
        // Makes new pools for each setting: objects that a pool left with the threads of one setting must not hold up
        // the next one.
        let (mut entrants, missing) = make(plan, setting, *huge_pages)?;
        let left_out = |entrant: &Entrant| {
            let cache = entrant.pool.cache().map(|cache| cache as u64);
            order.without.iter().any(|(name, of)| (name, *of) == (&entrant.name, cache))
        };
        entrants.retain(|entrant| !left_out(entrant));
        let begins = |entrant: &Entrant| {
            // After the limit, the receiver is gone.
            let _ = report.send(Report::Begins(number, row(plan, setting, entrant, &[])));
        };
        let rows = measure(plan, setting, &entrants, begins)?;
        let first = entrants.iter().filter(|entrant| entrant.name == contender(&entrant.name));
        let notes = first.map(note).chain(missing).collect();
        // As above.
        let _ = report.send(Report::Measured(rows, notes));
        progress.step();
    }
    Ok(())
}

/// What a pool consists of, in one line.
fn note(Entrant { name, pool: contender }: &Entrant) -> String {
    let block = contender.block().map(|block| format!(", contig_block_size {block}")).unwrap_or_default();
    let cache = contender.cache().map(|cache| format!(", cache {cache}")).unwrap_or_default();
    let object =
        other_object(&**contender).map(|bytes| format!("; objects of {bytes} bytes")).unwrap_or_default();
    format!("{name}{cache}{block}: {}{object}", contender.note())
}

/// The size of an object in bytes, if it differs from that of other pools.
fn other_object(contender: &dyn PoolContender) -> Option<usize> {
    Some(contender.object()).filter(|bytes| *bytes != OBJECT)
}

/// Transmit queues: one for each thread.
fn queues(plan: &Plan) -> u16 {
    plan.settings.iter().map(|setting| setting.threads as u16).max().unwrap_or(1)
}

/// The pools, and a note for each pool that is missing.
fn make(plan: &Plan, setting: &Setting, huge_pages: bool) -> Result<(Vec<Entrant>, Vec<String>), String> {
    let contiguous = setting.scenario == CONTIGUOUS;
    let small = contiguous && setting.get == SMALL_BLOCK;
    let objects = plan.objects();
    let mut entrants = Vec::new();
    let mut notes = Vec::new();
    let mut contenders = plan.contenders.clone();
    if plan.transmits() {
        contenders.retain(|name| peers::needs_dpdk(name));
    }
    if contiguous {
        contenders.retain(|name| HAVE_BLOCKS.contains(&name.as_str()));
    }
    for name in with_control(contenders) {
        let mut add = |pool: Box<dyn PoolContender>| entrants.push(Entrant { name: name.clone(), pool });
        match contender(&name) {
            "stillpoint/pool" => {
                for cache in [0, CACHE] {
                    add(Box::new(Bare::with_capacity(objects, cache, small)?));
                }
            }
            "stillpoint/pool+obj" => add(Box::new(Typed::with_capacity(objects)?)),
            "mimalloc" => match pool::mimalloc() {
                Ok(mimalloc) => add(mimalloc),
                Err(why) => notes.push(why),
            },
            "object-pool" => add(pool::object_pool(objects)),
            "sharded-slab" => add(pool::sharded_slab()),
            contender => {
                let driver = contender.rsplit('/').next().unwrap_or(contender);
                // In the packaged DPDK, a bucket has 64 KiB: 31 objects, or 15 objects of twice the size.
                let object = if small { 2 * OBJECT } else { OBJECT };
                for cache in [0, CACHE] {
                    // Without huge pages, there may not be enough memory for all pools.
                    let made = match plan.transmits() {
                        true => pool::transmitter(driver, objects, cache, queues(plan), huge_pages),
                        false => pool::mempool(driver, objects, object, cache, huge_pages),
                    };
                    match made {
                        Ok(mempool) => add(mempool),
                        Err(why) => notes.push(format!("{name}, cache {cache} left out: {why}")),
                    }
                }
            }
        }
    }
    Ok((entrants, notes))
}

fn measure(
    plan: &Plan,
    setting: &Setting,
    entrants: &[Entrant],
    begins: impl Fn(&Entrant),
) -> Result<Vec<Row>, String> {
    let slices = in_turns(
        entrants,
        plan.rounds,
        |_| (),
        |entrant, ()| {
            begins(entrant);
            match setting.scenario.as_str() {
                "producer-consumer" => hand_over(plan, &*entrant.pool),
                _ => by_itself(plan, setting, &*entrant.pool),
            }
        },
    );
    let mut rows = Vec::new();
    for (entrant, slices) in slices {
        let slices: Vec<Slice> = slices?.into_iter().flatten().collect();
        if !slices.is_empty() {
            let mut row = row(plan, setting, entrant, &slices);
            let gets_objects = ["plain", "bulks", "single"].contains(&setting.scenario.as_str());
            if gets_objects && setting.threads == 1 && row.void.is_none() {
                begins(entrant);
                let touched = |_, _: &Barrier| touched(plan.objects(), setting, &*entrant.pool);
                if let Some(touched) = on_each(&plan.cpus[..1], touched)?[0] {
                    row.put("objects_touched", touched as f64, 0);
                }
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// How many different objects a thread gets in as many gets as would hand out each object of the pool twice: the working set. `None` if
/// the pool was exhausted.
fn touched(objects: usize, setting: &Setting, contender: &dyn PoolContender) -> Option<usize> {
    let mut thread = contender.thread();
    let mut kept = vec![std::ptr::null_mut(); setting.keep];
    let mut seen = HashSet::new();
    for _ in 0..(2 * objects).div_ceil(setting.keep) {
        for (number, bulk) in kept.chunks_mut(setting.get).enumerate() {
            if !thread.get(bulk) {
                kept[..number * setting.get].chunks(setting.put).for_each(|bulk| thread.put(bulk));
                return None;
            }
        }
        seen.extend(kept.iter().map(|object| object.addr()));
        kept.chunks(setting.put).for_each(|bulk| thread.put(bulk));
    }
    Some(seen.len())
}

/// The result of a slice: objects a second, of all threads together, or `None` if the pool had no object left.
type Slice = Option<f64>;

/// Each thread works by itself. `None` if the contender has no such call.
fn by_itself(plan: &Plan, setting: &Setting, contender: &dyn PoolContender) -> Result<Option<Slice>, String> {
    let slices = on_each(&plan.cpus[..setting.threads], |_, barrier| {
        let mut thread = contender.thread();
        barrier.wait();
        let rate = one_thread(plan, setting, contender, &mut *thread);
        // No thread ends while the others measure.
        barrier.wait();
        rate
    })?;
    Ok(slices.into_iter().collect::<Option<Vec<Slice>>>().map(|slices| slices.into_iter().sum()))
}

/// Objects a second. The outer `None`: the contender has no such call. The inner `None`: the pool was exhausted.
fn one_thread(
    plan: &Plan,
    setting: &Setting,
    contender: &dyn PoolContender,
    thread: &mut dyn PoolThread,
) -> Option<Slice> {
    let contiguous = setting.scenario == CONTIGUOUS;
    let mut objects = vec![std::ptr::null_mut(); setting.keep.max(64)];
    let each = match contender.block().filter(|_| contiguous) {
        // Its blocks have another size. (Without huge pages, the blocks of dpdk/bucket have one object.)
        Some(block) if block == 1 || !setting.get.is_multiple_of(block) => return None,
        Some(block) => setting.shape().blocks(block).0 * block,
        None => setting.keep,
    };
    let mut work = |turns: u64| match contiguous {
        true => thread.contiguous(setting.shape(), turns, &mut objects),
        false => Some(thread.plain(setting.shape(), turns, &mut objects)),
    };
    // The first turns fill the caches. Then the number of turns grows until they take the time of a slice.
    let mut turns = 1;
    loop {
        let begin = Instant::now();
        if !work(turns)? {
            return Some(None);
        }
        let took = begin.elapsed();
        if took >= plan.slice {
            return Some(Some((turns * each as u64) as f64 / took.as_secs_f64()));
        }
        let factor = plan.slice.as_secs_f64() * 1.1 / took.as_secs_f64().max(1e-7);
        turns = (turns as f64 * factor.clamp(1.1, 1e4)).ceil() as u64;
    }
}

/// One thread gets bulks and hands them to another one, which frees them.
fn hand_over(plan: &Plan, contender: &dyn PoolContender) -> Result<Option<Slice>, String> {
    let (pipe, stop, done) = (Pipe::new(), AtomicBool::new(false), AtomicBool::new(false));
    let time = plan.slice.max(Duration::from_millis(2));
    // Returns the seconds that it took.
    let produce = |thread: &mut dyn PoolThread| {
        let mut bulk = [std::ptr::null_mut(); BULK];
        let begin = Instant::now();
        'time: while begin.elapsed() < time {
            for _ in 0..64 {
                // An empty pool waits for the consumer.
                while !thread.get(&mut bulk) {
                    if begin.elapsed() >= time {
                        break 'time;
                    }
                    std::hint::spin_loop();
                }
                pool::read_each(&bulk);
                while !pipe.send(&bulk) {
                    std::hint::spin_loop();
                }
            }
        }
        let took = begin.elapsed();
        // Release: pairs with the acquire below.
        stop.store(true, Ordering::Release);
        // In dpdk/bucket, a free waits until the owner of the bucket has room for it; it waits for ever if the
        // owner makes no calls. So this thread calls until the consumer has ended. Relaxed: a flag on its own.
        while !done.load(Ordering::Relaxed) {
            if thread.get(&mut bulk) {
                thread.put(&bulk);
            }
        }
        took.as_secs_f64()
    };
    // Returns the number of objects that it freed.
    let consume = |thread: &mut dyn PoolThread| {
        let mut freed = 0u64;
        loop {
            // Loaded before the pipe is checked, so that bulks that were sent before the end are found. Acquire:
            // pairs with the release above.
            let ends = stop.load(Ordering::Acquire);
            match pipe.receive() {
                Some(bulk) => {
                    thread.put(&bulk);
                    freed += BULK as u64;
                }
                None if ends => {
                    // Relaxed: see above.
                    done.store(true, Ordering::Relaxed);
                    return freed as f64;
                }
                None => std::hint::spin_loop(),
            }
        }
    };
    let done = on_each(&plan.cpus[..2], |index, barrier| {
        let mut thread = contender.thread();
        barrier.wait();
        if index == 0 { produce(&mut *thread) } else { consume(&mut *thread) }
    })?;
    let (took, freed) = (done[0], done[1]);
    Ok(Some((freed > 0.0).then(|| freed / took)))
}

fn row(plan: &Plan, setting: &Setting, entrant: &Entrant, slices: &[Slice]) -> Row {
    let mut row = Row::new("pool", &setting.scenario, &entrant.name)
        .with("get", setting.get)
        .with("put", setting.put)
        .with("keep", setting.keep)
        .with("cores", setting.threads)
        .with("rounds", plan.rounds);
    let pool = &*entrant.pool;
    for (name, value) in
        [("cache", pool.cache()), ("block", pool.block()), ("object_bytes", other_object(pool))]
    {
        if let Some(value) = value {
            row = row.with(name, value);
        }
    }
    let rates: Vec<f64> = slices.iter().copied().flatten().collect();
    let exhausted = slices.len() - rates.len();
    // There are enough objects, unless a pool keeps objects back that the calling thread needs. If it does, that is a
    // result.
    if entrant.name.starts_with("stillpoint") && exhausted > 0 {
        row.void = Some("the pool was exhausted".to_owned());
        return row;
    }
    if exhausted > 0 {
        row.put("exhausted_slices", exhausted as f64, 0);
    }
    if !rates.is_empty() {
        let rate = median(rates);
        row.put(if plan.transmits() { "packets_per_s" } else { "objects_per_s" }, rate, 0);
        row.put("ns_per_op", setting.threads as f64 * 1e9 / rate, 3);
    }
    row
}
