//! How many CPUs there may be.

use std::fs::File;
use std::io::Read;

/// One more than the highest number that a CPU may ever have. CPUs may be absent, so this may be more than the number of CPUs.
pub(super) fn possible_cpus() -> usize {
    // SAFETY: the function has no preconditions.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let mut list = [0; 4096];
    let length = File::open("/sys/devices/system/cpu/possible").and_then(|mut file| file.read(&mut list));
    let possible = length.ok().and_then(|length| end_of(std::str::from_utf8(&list[..length]).ok()?));
    possible.unwrap_or(0).max(usize::try_from(configured).unwrap_or(0))
}

/// One more than the highest number in a list of the kernel, such as `0-3,8`. `None` if it is no such list.
fn end_of(list: &str) -> Option<usize> {
    list.trim_end().split(',').try_fold(0, |end: usize, range| {
        // No kernel has more CPUs than a u16 counts.
        let last: u16 = range.rsplit('-').next()?.parse().ok()?;
        Some(end.max(usize::from(last) + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_possible_cpu_counts() {
        assert_eq!(end_of("0\n"), Some(1));
        assert_eq!(end_of("0-3\n"), Some(4));
        assert_eq!(end_of("0-3,8\n"), Some(9));
        assert_eq!(end_of("0,2-5,16-31"), Some(32));
        for wrong in ["", "\n", "none", "0-", "0-3,", "-", "0-99999999"] {
            assert_eq!(end_of(wrong), None, "{wrong:?}");
        }
        assert!(possible_cpus() >= std::thread::available_parallelism().unwrap().get());
    }
}
