//! The command `simulate`: multicasts on machines that you do not have.
//!
//! A discrete-event model of what an acknowledged multicast by inter-processor interrupts costs, in the manner of the
//! postal model (Bar-Noy and Kipnis, 1992) and LogP (Culler et al., 1993), with interrupt handlers, hyperthreads and
//! contended cache lines. Its parameters come from a file. The command draws the three figures of the poster on tree
//! multicast.
//!
//! Inputs (`inputs`) are kept apart from results (`rows`). The results are compared with the poster's (`published`),
//! and the conclusions from them are computed again with other inputs (`sensitivity`).

mod contender;
mod experiment;
mod figures;
mod handler;
mod inputs;
mod machine;
mod operation;
mod options;
mod page;
mod places;
mod published;
mod rows;
mod sensitivity;
mod show;
mod task;
mod world;

use std::collections::BTreeMap;

use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json;
use stillpoint_harness::results::{self, Results};
use stillpoint_harness::{interrupt, output};

use self::contender::HYBRID;
pub use self::figures::FIGURES;
use self::machine::Machine as Simulated;
pub use self::options::Options;
use self::options::Subject;
pub use self::page::{Table, tables};

/// The fields of the JSON beside the rows.
#[derive(Debug, Serialize)]
struct Extra<'a> {
    simulated: &'a Simulated,
}

/// Simulates, prints the tables, and writes the files that were asked for. `peers` are those that the program was
/// built with.
pub fn run(options: &Options, peers: BTreeMap<String, String>) -> Result<(), Stop> {
    let Subject::Membarrier = options.subject;
    interrupt::listen();
    let here = Machine::look(peers);
    let mut simulated = Simulated::load(&options.machine)?;
    let base = if options.machine == "kvm" { "kvm" } else { "seed" };
    let plan = rows::Plan::new(options, &simulated)?;
    let results = Results::open(&options.results)?;
    options.check_outputs()?;
    let needs_threshold = plan.has(HYBRID) || options.write.is_some();
    if simulated.multicast.hybrid_threshold.is_none() && needs_threshold {
        // After Ctrl-C there is no crossover, and there are no rows.
        simulated.multicast.hybrid_threshold = experiment::crossover(&simulated);
    }
    let published = published::compare(&simulated, base, options.seed);
    let mut rows = plan.run(&simulated);
    let analysis = plan.analyse(&simulated);
    rows.extend(inputs::rows(&simulated, base, &options.machine));
    rows.extend(published::rows(&published));
    rows.extend(analysis.iter().flat_map(|analysis| analysis.rows(0)));
    if !results.takes_stdout() {
        show::all(&simulated, &published, &rows, analysis.as_ref());
    }
    if let Some(file) = &options.write {
        results::write(file, simulated.text()?.as_bytes())?;
    }
    results.write(&here, &rows, Extra { simulated: &simulated }, FIGURES)?;
    if interrupt::requested() {
        output::tell(format!("interrupted: {} rows were simulated", rows.len()));
    }
    json::judge(&rows)
}
