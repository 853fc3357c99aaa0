//! What the names in results stand for: the words for the terminal, the help and the page.

use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{each_once, heading, say_text};

macro_rules! words {
    ($($name:literal: $words:literal,)*) => { &[$(($name, $words)),*] };
}

/// Contenders, scenarios, and what figures are compared with, each in a few words.
const WORDS: &[(&str, &str)] = words! {
    // Scenarios of reclaim, and its source.
    "the talk": "\"Token-based RCU\", N. Brown (Arm), FOSDEM: the experiment that `bench reclaim` repeats",
    "own-core": "each reader on a CPU of its own, the writer on another CPU",
    "one-core": "all readers on one CPU, the writer on another CPU",
    "spread": "the readers spread over several CPUs, the writer on the last of them",
    // Of preempt and guest.
    "the paper": "\"The RCU-Reader Preemption Problem in VMs\", Prasad, Gopinath, McKenney, USENIX ATC 2017",
    "mail": "a store of messages of 320 bytes to 8 KiB, with 10,000 changes a second",
    "memory": "16,384 objects of 256 bytes, with 50,000 updates a second in bursts of 50",
    "memory-max": "16,384 objects of 256 bytes, with updates without a pause while less than 64 MiB wait to \
        be freed",
    "baseline": "one reader on each CPU",
    "overcommit": "several readers on each CPU",
    "groups": "one reader, and one that sleeps for a millisecond in each section, of one group or of two; only if it is named",
    "over-time": "the last round, over the time since it began",
    "swap": "the objects and updates of memory, under a limit of memory beyond which the guest swaps; only if it is named",
    "balloon": "the objects and updates of memory, while the host asks for memory back; only if it is named",
    "linux/rcu": "the RCU of the guest's own kernel",
    // Operations of micro and capi.
    "quiescent": "a QSBR reader says that it holds nothing",
    "pin": "a region begins and ends",
    "pin-linked": "a region begins and ends, through functions of the library that are not inlined",
    "protect": "one object is protected and released",
    "keep": "a value of 1,000 is looked up, kept so that any thread may drop it, and dropped",
    "start": "a token for a grace period is taken",
    "check": "a token is looked at",
    "retire": "an object of 64 bytes is allocated, written, and exchanged for the one in a shared pointer; \
        the old one is queued, and freed in batches of 64, which is included. With liburcu, a worker on \
        another CPU frees",
    "retire-2": "retire on two threads, each with its own pointer, in one domain",
    "heavy": "stillpoint's process-wide fence; for others, a wait for a grace period without readers",
    "wait": "a wait for a grace period, beside a reader that reads all the time on another CPU",
    "malloc": "only the memory of retire, without reclamation",
    "lookup": "a lookup in a table of 1,000 keys of 8 bytes",
    "burst": "a lookup of 32 keys at a time in a table of 1,000 keys",
    "lookup-1m": "a lookup in a table of 1,048,576 keys",
    "burst-1m": "a lookup of 32 keys at a time in a table of 1,048,576 keys",
    "call": "call_rcu, without the callback",
    "calls": "single operations",
    "delays": "from unlink to free",
    "callbacks": "from call_rcu to its callback",
    "timers": "timers of one thread, through rte_timer.h",
    "free-workers": "the end of idle workers of call_rcu",
    // Of table.
    "uniform": "every key is looked up equally often",
    "zipf": "few keys are looked up most of the time, by Zipf's law",
    "growth": "a table that begins empty and grows; its memory",
    "bustle": "the mixes of the benchmark bustle",
    "conc-map-bench": "the mixes of the benchmark conc-map-bench",
    "service": "a web service's map: text keys, few writes, also more threads than CPUs",
    // Of membarrier and simulate.
    "the poster": "\"Scalable membarrier\": barriers along a tree of interrupts in Linux, on 144 logical \
        CPUs",
    "receivers": "one initiator, and more and more threads that a barrier has to reach",
    "initiators": "more and more threads that begin barriers at once",
    "readers": "what readers lose to a writer that synchronizes",
    "synchronize": "what readers lose to a writer that synchronizes",
    // Of timer.
    "own": "timers of one thread",
    "steady": "timeouts of one length, which are renewed before they end",
    "remote": "one thread adds timers to another thread's wheel",
    "connections": "an application: idle timeouts of connections, which packets renew",
    "queues": "queues of delays, which a task reads in real time",
    // Of pool.
    "RFC": "patches proposed for DPDK; their numbers are drawn as published, and were not measured here",
    "plain": "objects out and back, several at a time",
    "contiguous": "blocks of objects out, and objects or whole blocks back",
    "single": "one object out and back",
    "bulks": "objects out and back in the bulks of DPDK's own mempool_perf_autotest",
    "private": "each thread with its own objects",
    "producer-consumer": "one thread takes objects out, and another thread puts them back",
    "transmit": "packets to DPDK's null device",
    "transmit-huge": "packets to DPDK's null device, from reserved huge pages",
    // Of structures.
    "stack": "each thread pushes and pops in turn",
    "queue": "each thread pushes and pops in turn",
    "list-90-10": "an ordered list, 90 lookups and 10 writes in 100 calls",
    "list-50-50": "an ordered list, 50 lookups and 50 writes in 100 calls",
    "list-parked": "the memory that waits to be freed while one reader of a list is stalled",
    // Reclamation.
    "stillpoint/protected": "each reader protects only what it looks at; in asymmetric mode, the writer \
        pays for heavy fences",
    "stillpoint/get": "each lookup protects what it looks at, by a reader that is bound to nothing, as \
        Table::get and RcuCell::get do",
    "stillpoint/guard": "each read is in a region, which holds up all objects; in asymmetric mode, the \
        writer pays for heavy fences",
    "stillpoint/guard+boost": "regions; preempted readers are raised to a real-time priority",
    "stillpoint/guard+migrate": "regions; preempted readers are moved to the writer's CPU",
    "stillpoint/guard32": "one region for 32 lookups",
    "stillpoint/owned": "owned protections, which may move to another thread",
    "stillpoint/default": "the default domain, whose reader is that of the thread",
    "stillpoint/qsbr": "readers say now and then that they hold nothing (QSBR); the writer itself frees, \
        when it deletes",
    "stillpoint/qsbr+poll": "QSBR; the writer frees repeatedly until the next delete",
    "stillpoint/qsbr+background": "QSBR; a second thread frees, which sleeps on a futex and shares the \
        writer's CPU",
    "liburcu/qsbr": "liburcu's QSBR and call_rcu: its worker is woken by futex and waits 10 ms between \
        batches",
    "liburcu/qsbr+sync": "liburcu's QSBR; a second thread is woken by each delete, calls synchronize_rcu, \
        and frees what has come",
    "liburcu/qsbr+rt": "liburcu's QSBR and call_rcu with URCU_CALL_RCU_RT: its worker polls every 10 ms, \
        from the first use on",
    "liburcu/memb": "call_rcu as in liburcu/qsbr; each grace period interrupts the readers by membarrier",
    "liburcu/mb": "call_rcu as in liburcu/qsbr; each section pays three full fences, and readers are not \
        interrupted",
    "dpdk/rcu": "DPDK's QSBR, freed at later deletes: by rte_hash_rcu_qsbr_add on tables, whose delays \
        include the deletion; by a FIFO of tokens on arrays",
    "dpdk/rcu+poll": "DPDK's QSBR with a FIFO of tokens, checked from the oldest on whenever the writer \
        polls",
    "dpdk/rcu+background": "DPDK's QSBR; a second thread checks token after token; it spins and never \
        sleeps, as DPDK's threads do",
    "ck/epoch": "Concurrency Kit's epochs: a locked instruction for each section; the writer polls at its \
        deletes, in `reclaim` also while idle",
    "crossbeam-epoch": "each section is pinned; every 128th pin of a thread collects garbage, on that thread",
    "seize": "batches of 32; a batch smaller than the number of active readers waits; the last reader out \
        frees it",
    "haphazard": "hazard pointers: a full fence for each protected load; without polls it frees a thousand \
        objects at once",
    "papaya": "papaya's hash table, pinned for each lookup; entries are freed by seize, in batches of 32",
    "c/qsbr": "stillpoint/qsbr through stillpoint.h",
    "c/guard": "stillpoint/guard through stillpoint.h",
    "c/protected": "stillpoint/protected through stillpoint.h",
    "drop-in/urcu-qsbr": "the program of liburcu/qsbr, compiled with our urcu-qsbr.h",
    "drop-in/urcu-memb": "the program of liburcu/memb, compiled with our urcu.h",
    "drop-in/urcu-mb+boost": "the program of liburcu/mb, compiled with our urcu.h; preempted readers are \
        raised to a real-time priority",
    "drop-in/rte_rcu_qsbr": "the program of dpdk/rcu, compiled with our rte_rcu_qsbr.h",
    // Hash tables.
    "stillpoint/table": "stillpoint::table, whose lookups protect single entries",
    "stillpoint/table+guard": "stillpoint::table, with one region for all lookups",
    "stillpoint/table+get": "stillpoint::table, by Table::get, with the reader of the thread in the default \
        domain",
    "dpdk/rte_hash": "DPDK's hash table, lock-free",
    "papaya+guard": "papaya's hash table, pinned once for all lookups",
    "dashmap": "a hash table in shards behind locks",
    "scc": "a hash table with a lock for each bucket",
    "std/rwlock": "std's HashMap behind std's RwLock",
    // Barriers.
    "syscall": "the system call membarrier, which interrupts only the CPUs that run a thread",
    "mprotect": "a change of a page's protection, which interrupts only the CPUs that run a thread",
    "signal/flat": "the initiator sends a signal to every thread, and waits until each has run",
    "signal/tree": "signals along a tree: those that were reached pass them on",
    "module/smp-call": "the kernel module: the kernel's own call on many CPUs",
    "module/flat": "the kernel module: interrupts from one CPU",
    "module/tree": "the kernel module: interrupts along a tree",
    "module/split": "the kernel module: a tree whose children get less than half of what is left",
    "module/hybrid": "the kernel module: flat up to some number of CPUs, along the tree beyond",
    "symmetric": "readers with fences of their own, which need no barrier",
    // Timers.
    "stillpoint/wheel": "our wheel; the time is told as an integer",
    "stillpoint/wheel+instant": "our wheel; the time is told as an Instant and a Duration",
    "stillpoint/wheel+clock": "our wheel; the clock is read at each call",
    "stillpoint/queue": "a queue of delays for a task, over our wheel; other threads may add to it and wake \
        it",
    "stillpoint/delay-queue": "our queue of delays, which tasks share; it is behind a lock, and reads a \
        clock",
    "floor": "only linked lists that take as much memory, without keys, levels or expiry; its polls are an \
        empty loop",
    "c/htimer": "timers with functions in C, by our htimer.h; the time is told in ticks",
    "nexus-timer": "the timer wheel of the crate nexus-timer; the time is told as an Instant",
    "nexus-timer+clock": "the timer wheel of the crate nexus-timer; the clock is read at each call",
    "tokio-util": "tokio's DelayQueue",
    "hierarchical_hash_wheel_timer": "the timer wheel of the crate of this name",
    "dpdk/rte_timer": "DPDK's timers, which read the clock themselves",
    "drop-in/rte_timer": "the program of dpdk/rte_timer, compiled with our rte_timer.h",
    // Pools.
    "stillpoint/pool": "stillpoint::pool: objects in contiguous buckets",
    "stillpoint/pool+obj": "stillpoint::pool by safe calls: owned objects, many at a time as a Bulk",
    "dpdk/stillpoint": "DPDK's mempool over our pool, by our driver",
    "dpdk/bucket": "DPDK's mempool over buckets",
    "dpdk/ring": "DPDK's mempool over a ring",
    "dpdk/stack": "DPDK's mempool over a stack",
    "mimalloc": "an allocator, not a pool",
    "object-pool": "the pool of the crate of this name",
    "sharded-slab": "the slab of the crate of this name, in shards",
    "crossbeam-queue": "crossbeam's own queue",
    "crossbeam-skiplist": "crossbeam's own ordered map",
};

/// What a contender or scenario is.
pub(crate) fn words(name: &str) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == name).map(|&(_, words)| words)
}

/// The names in rows, scenarios first, each once and with its words. A row that was measured again has the name of the first.
pub(crate) fn of_rows<'r>(rows: impl IntoIterator<Item = &'r Row> + Clone) -> Vec<(&'r str, &'static str)> {
    let scenarios = rows.clone().into_iter().flat_map(|row| {
        [Some(row.scenario.as_str()), row.params.get("workload").and_then(|name| name.as_str())]
    });
    let contenders = rows.into_iter().map(|row| contender(&row.contender));
    each_once(scenarios.flatten().chain(contenders).filter_map(|name| Some((name, words(name)?))))
}

/// Prints what the names in rows stand for.
pub(crate) fn show(rows: &[Row]) {
    let named = of_rows(rows);
    if !named.is_empty() {
        heading("Names");
        named.into_iter().for_each(|(name, words)| say_text(format!("{name}: {words}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_words_once() {
        for (at, (name, words)) in WORDS.iter().enumerate() {
            assert!(WORDS[at + 1..].iter().all(|(other, _)| other != name), "{name}");
            assert!(!words.is_empty() && !words.ends_with('.'), "{name}: {words}");
            assert!(!words.contains("the same"), "{name}: what stands before it may be missing");
        }
    }
}
