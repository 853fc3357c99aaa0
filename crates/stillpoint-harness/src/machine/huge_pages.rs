//! Reserved huge pages, for DPDK's memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt::{self, AtTheEnd};
use crate::output;

/// Where the kernel counts the huge pages of this size.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// The default size on x86-64.
const PAGE: usize = 2 << 20;

/// Huge pages that were reserved for DPDK. The previous number is restored when this is dropped, or the program is ended.
#[derive(Debug)]
pub struct HugePages {
    count: usize,
    pool: Arc<Pool>,
    _at_the_end: AtTheEnd,
}

#[derive(Debug)]
struct Pool {
    /// The file that holds the number of all pages.
    all: PathBuf,
    before: usize,
    /// Whether the previous number was restored.
    restored: AtomicBool,
}

impl HugePages {
    /// `None` if there are not enough, and enough more could not be reserved.
    pub fn reserve(megabytes: usize) -> Option<Self> {
        Self::reserve_in(Path::new(POOL), megabytes)
    }

    fn reserve_in(folder: &Path, megabytes: usize) -> Option<Self> {
        let [all, free] = ["nr_hugepages", "free_hugepages"].map(|name| folder.join(name));
        let count = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<usize>().ok();
        let before = count(&all)?;
        let needed = (megabytes << 20).div_ceil(PAGE) + 8;
        // Pages of other processes, or of an earlier experiment in this one, are not free.
        let missing = needed.saturating_sub(count(&free)?);
        if missing > 0 {
            fs::write(&all, (before + missing).to_string()).ok()?;
        }
        let pool = Arc::new(Pool { all, before, restored: AtomicBool::new(missing == 0) });
        let restore = Arc::clone(&pool);
        let pages =
            Self { count: needed, pool, _at_the_end: interrupt::at_the_end(move || restore.restore()) };
        // The kernel reserves fewer when memory is scattered.
        (count(&free)? >= needed).then_some(pages)
    }

    /// The number of pages.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Pool {
    /// Restores the previous number, once. A process that uses pages keeps them until it ends.
    fn restore(&self) {
        // Relaxed: a flag on its own.
        if !self.restored.swap(true, Ordering::Relaxed)
            && let Err(error) = fs::write(&self.all, self.before.to_string())
        {
            output::tell(format!("warning: cannot set vm.nr_hugepages back to {}: {error}", self.before));
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.pool.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like the kernel's, which does not reserve anything by itself.
    fn folder(all: &str, free: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nr_hugepages"), all).unwrap();
        fs::write(folder.path().join("free_hugepages"), free).unwrap();
        folder
    }

    fn all(folder: &tempfile::TempDir) -> String {
        fs::read_to_string(folder.path().join("nr_hugepages")).unwrap()
    }

    #[test]
    fn enough_huge_pages_are_left_alone() {
        let folder = folder("5000\n", "40\n");
        drop(HugePages::reserve_in(folder.path(), 64).unwrap());
        assert_eq!(all(&folder), "5000\n");
        assert!(HugePages::reserve_in(Path::new("/no/such/folder"), 64).is_none());
    }

    #[test]
    fn pages_in_use_do_not_count_and_the_number_is_restored_once() {
        let folder = folder("680\n", "8\n");
        // 40 pages are needed, so 32 are missing. No kernel reserves them in this folder.
        assert!(HugePages::reserve_in(folder.path(), 64).is_none());
        assert_eq!(all(&folder), "680", "the number was not restored");

        let pool =
            Pool { all: folder.path().join("nr_hugepages"), before: 3, restored: AtomicBool::new(false) };
        pool.restore();
        assert_eq!(all(&folder), "3");
        fs::write(folder.path().join("nr_hugepages"), "7").unwrap();
        pool.restore();
        assert_eq!(all(&folder), "7", "a number that was set later was overwritten");
    }
}
