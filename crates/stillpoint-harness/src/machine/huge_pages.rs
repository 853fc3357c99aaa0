//! Reserved huge pages, which DPDK's memory is made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt::{self, AtTheEnd};
use crate::output;

const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// Of the default size on x86-64.
const PAGE: usize = 2 << 20;

/// Huge pages that were reserved for DPDK; the number before is restored when this is dropped, or the program is ended.
#[derive(Debug)]
pub struct HugePages {
    pool: Arc<Pool>,
    _at_the_end: AtTheEnd,
}

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    before: usize,
    reserved: usize,
    restored: AtomicBool,
}

impl HugePages {
    /// `None` when there are not enough, and this process may not reserve them.
    pub fn reserve(megabytes: usize) -> Option<Self> {
        Self::reserve_in(Path::new(POOL), megabytes)
    }

    fn reserve_in(path: &Path, megabytes: usize) -> Option<Self> {
        let count = || fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
        let before = count()?;
        let reserved = (megabytes << 20).div_ceil(PAGE) + 8;
        if before < reserved {
            fs::write(path, reserved.to_string()).ok()?;
        }
        let restored = AtomicBool::new(false);
        let pool = Arc::new(Pool { path: path.to_owned(), before, reserved, restored });
        let restore = Arc::clone(&pool);
        let pages = Self { pool, _at_the_end: interrupt::at_the_end(move || restore.restore()) };
        // The kernel reserves fewer when memory is scattered.
        (count()? >= reserved).then_some(pages)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.pool.reserved
    }
}

impl Pool {
    /// Once. Who has the pages keeps them: the kernel takes them back when that process ends.
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
        self.pool.restore();
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
        let pages = HugePages::reserve_in(file.path(), 64).unwrap();
        assert_eq!((now(), pages.count()), ("40".to_owned(), 40));
        pages.pool.restore();
        assert_eq!(now(), "3");
        fs::write(file.path(), "7").unwrap();
        drop(pages);
        assert_eq!(now(), "7", "what others have set since then stays");
    }

    #[test]
    fn enough_huge_pages_are_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "5000").unwrap();
        drop(HugePages::reserve_in(file.path(), 64).unwrap());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "5000");
        assert!(HugePages::reserve_in(Path::new("/no/such/file"), 64).is_none());
    }
}
