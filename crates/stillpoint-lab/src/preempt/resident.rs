//! The memory of this process that is resident.

use std::fs;

/// Bytes of this process that are in memory; 0 where the kernel does not tell.
pub(super) fn bytes() -> usize {
    let Ok(text) = fs::read_to_string("/proc/self/statm") else { return 0 };
    pages(&text) * rustix::param::page_size()
}

/// The second number: `size resident shared ...`, in pages.
fn pages(statm: &str) -> usize {
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_resident() {
        assert_eq!(pages("12345 678 90 1 0 2 0\n"), 678);
        let before = bytes();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(bytes() >= before + (32 << 20), "of {} bytes", touched.len());
    }
}
