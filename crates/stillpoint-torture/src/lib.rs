//! Correctness of the library under stress, in the manner of the Linux kernel's rcutorture: `stillpoint torture`.
//!
//! A run repeats a cycle of parts (`part`, `plan`) until its time is up or something is found.
//!
//! - `mixed`: two domains, one in each fence mode, and more threads than CPUs. Readers of every kind, nested,
//!   overlapping, sleeping, forgotten, registered for a moment or for long (`reader`); writers by every primitive
//!   (`writer`).
//! - `races`: two threads or a few that do one thing as fast as they can, each to provoke one fault whose window is
//!   too short for chance.
//! - `flood`: retirements as fast as can be while readers come and go.
//! - `table`: the hash table, with parts of its own of both kinds.
//! - `forks`: children that reset their domain and go on.
//!
//! Meanwhile `parked` readers of three more domains stand still in a signal handler, for whole cycles.
//!
//! What is checked:
//!
//! - Nothing is destroyed while a reader holds it. Objects stand for records that are never freed (`arena`), so a
//!   fault is found in the record, and does not depend on what is left in freed memory; and they lie between canaries in
//!   memory that is freed and used again.
//! - No region reader holds an object whose grace period is over: unlinked objects *age* with each grace period
//!   (`pipe`), and each look is counted by age.
//! - When a token, a wait, or a callback says that a grace period is over, no section that began before it is still
//!   going on (`section`); inside a section, a token started there is not over; without readers, every token is.
//! - At the end of each part every object has been destroyed, once, and every callback called.
//! - Threads that must be refused are refused, and no thread is stuck (`watchdog`).
//! - Enough of everything was tried (`counts`): a run that tried too little fails.
//!
//! Whether the checks can fail is shown by the broken variants of the library (`variant`). They run the same parts
//! for the same times.

mod actor;
mod arena;
mod awaiting;
mod counts;
mod course;
mod findings;
mod flood;
mod forks;
mod hog;
mod hold;
mod leftover;
mod looks;
mod lull;
mod mixed;
mod options;
mod park;
mod parked;
mod part;
mod pipe;
mod plan;
mod races;
mod reader;
mod report;
mod roll;
mod section;
mod setting;
mod stores;
mod table;
mod tally;
mod times;
mod trouble;
mod variant;
mod watchdog;
mod world;
mod writer;

use std::collections::BTreeMap;

use stillpoint_harness::error::Stop;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json::Nothing;
use stillpoint_harness::results::Results;

use self::arena::Context;
use self::course::Course;
use self::findings::Findings;
use self::plan::Plan;
use self::variant::Broken;
use self::watchdog::Watchdog;

pub use self::course::FIGURES;
pub use self::options::Options;

/// Runs for the time that was asked for, or until something is found. The peers are those that the program was built with.
pub fn run(options: &Options, peers: BTreeMap<String, String>) -> Result<(), Stop> {
    if options.list_busted {
        variant::list();
        return Ok(());
    }
    let broken = options.busted.as_deref().map(Broken::select).transpose()?;
    let results = Results::open(&options.results)?;
    if results.takes_stdout() {
        return Err(Stop::usage("torture prints on standard output: give --json the name of a file"));
    }
    let plan = Plan::new(options);
    report::introduce(&plan, broken);
    interrupt::listen();
    let findings = Findings::leak();
    let context = Context::leak(plan.threads + 1, findings);
    let course = Course::follow(context, plan.duration);
    let run = plan.run(context, &Watchdog::start(findings, broken))?;
    report::show(&run);
    results.write(&Machine::look(peers), &course.rows(), Nothing {}, FIGURES)?;
    report::judge(context, &run, broken)
}
