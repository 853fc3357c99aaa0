//! The child process in which the tables are measured, and the huge pages for DPDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::output::json::Row;
use crate::{interrupt, output};

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_TABLE";
const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// Of the default size on x86-64.
const PAGE: usize = 2 << 20;

#[derive(Serialize, Deserialize)]
struct Order {
    plan: Plan,
    megabytes: usize,
    huge_pages: bool,
}

#[derive(Deserialize)]
struct ReadRow {
    scenario: String,
    contender: String,
    params: Map<String, Value>,
    metrics: Map<String, Value>,
    void: Option<String>,
}

/// Runs a plan in a child. Returns its rows, and a sentence about the huge pages.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, String), Stop> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Stop::Failed(format!("{what}: {error}"));
    // Buckets of 8 bytes an entry and slots of 32 bytes at the most, an eighth more entries, and as much to spare.
    let megabytes = ((plan.entries * 96) >> 20) + 64;
    let pages = plan.has_dpdk().then(|| HugePages::reserve(Path::new(POOL), megabytes)).flatten();
    let _restore = pages.as_ref().map(|pages| {
        let pool = pages.share();
        interrupt::at_the_end(move || pool.restore())
    });
    let order = Value::Object(Map::from_iter([
        (
            "plan".to_owned(),
            serde_json::to_value(plan).map_err(|error| failed("the plan has no form", &error))?,
        ),
        ("megabytes".to_owned(), megabytes.into()),
        ("huge_pages".to_owned(), pages.is_some().into()),
    ]));
    let rows: Option<Vec<ReadRow>> = child::ask(VARIABLE, "measures tables", &order, OnInterrupt::Wait)?;
    let rows = rows.unwrap_or_default().into_iter().map(|row| Row {
        experiment: "table",
        scenario: row.scenario,
        contender: row.contender,
        params: row.params,
        metrics: row.metrics,
        void: row.void,
    });
    let about = match &pages {
        Some(pages) => format!("rte_hash has {} reserved huge pages of 2 MiB", pages.0.reserved),
        None if !plan.has_dpdk() => "no huge pages were reserved".to_owned(),
        None => {
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages".to_owned()
        }
    };
    Ok((rows.collect(), about))
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |Order { plan, megabytes, huge_pages }: Order| {
        super::measure::run(&plan, megabytes, huge_pages)
    })
}

/// Huge pages that were reserved for the child; the number before is restored when this is dropped.
struct HugePages(Arc<Pool>);

struct Pool {
    path: PathBuf,
    before: usize,
    reserved: usize,
    restored: AtomicBool,
}

impl HugePages {
    /// `None` when there are not enough, and this process may not reserve them.
    fn reserve(path: &Path, megabytes: usize) -> Option<Self> {
        let count = || fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
        let before = count()?;
        let reserved = (megabytes << 20).div_ceil(PAGE) + 8;
        if before < reserved {
            fs::write(path, reserved.to_string()).ok()?;
        }
        let restored = AtomicBool::new(false);
        let pages = Self(Arc::new(Pool { path: path.to_owned(), before, reserved, restored }));
        // The kernel reserves fewer when memory is scattered.
        (count()? >= reserved).then_some(pages)
    }

    fn share(&self) -> Arc<Pool> {
        Arc::clone(&self.0)
    }
}

impl Pool {
    /// Once. The child may have the pages still: the kernel takes them back when it ends.
    fn restore(&self) {
        // Relaxed: a flag on its own.
        if self.before < self.reserved
            && !self.restored.swap(true, Ordering::Relaxed)
            && let Err(error) = fs::write(&self.path, self.before.to_string())
        {
            output::tell(format!("vm.nr_hugepages could not be set back to {}: {error}", self.before));
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.0.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_huge_pages_is_restored_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = || fs::read_to_string(file.path()).unwrap();
        fs::write(file.path(), "3\n").unwrap();
        let pages = HugePages::reserve(file.path(), 64).unwrap();
        assert_eq!((now(), pages.0.reserved), ("40".to_owned(), 40));
        pages.share().restore();
        assert_eq!(now(), "3");
        fs::write(file.path(), "7").unwrap();
        drop(pages);
        assert_eq!(now(), "7", "what others have set since then stays");
    }

    #[test]
    fn enough_huge_pages_are_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "5000").unwrap();
        drop(HugePages::reserve(file.path(), 64).unwrap());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "5000");
        assert!(HugePages::reserve(Path::new("/no/such/file"), 64).is_none());
    }
}
