//! Copies addresses, in wide registers where the processor has them.
//!
//! Groups of four are cut so that a load of one copy matches a store of the other. [`reversed`] reads groups of four
//! from the upper end. So [`within`] first writes the addresses that do not fill a group, and its groups end at the
//! upper end. A processor forwards a store to a load that lies within it; a load that spans two stores has to wait for
//! the cache.

/// Below this number of addresses, a call costs more than it saves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE: usize = 8;

#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! if_wide {
    ($count:expr, $wide:expr) => {
        if $count >= WIDE && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, and the addresses may be copied, by the caller's promise.
            return unsafe { $wide };
        }
    };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
macro_rules! if_wide {
    ($($tokens:tt)*) => {};
}

/// Copies addresses, the last one first.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(super) unsafe fn reversed(from: *const *mut u8, to: *mut *mut u8, count: usize) {
    if_wide!(count, wide::reversed(from, to, count));
    let mut left = count;
    while left >= 4 {
        left -= 4;
        // SAFETY: within the caller's bounds: `left` is below `count`.
        unsafe {
            let [a, b, c, d] = from.add(left).cast::<[*mut u8; 4]>().read();
            to.add(count - left - 4).cast::<[*mut u8; 4]>().write([d, c, b, a]);
        }
    }
    while left > 0 {
        left -= 1;
        // SAFETY: within the caller's bounds: `left` is below `count`.
        unsafe { to.add(count - left - 1).write(from.add(left).read()) };
    }
}

/// Copies addresses, and returns whether each is at least `start`, and at most `last` bytes above it.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(super) unsafe fn within(
    from: *const *mut u8,
    to: *mut *mut u8,
    count: usize,
    start: usize,
    last: usize,
) -> bool {
    if_wide!(count, wide::within(from, to, count, start, last));
    let mut strange = 0;
    for index in 0..count {
        // SAFETY: within the caller's bounds.
        strange |= unsafe { one_within(from.add(index), to.add(index), start, last) };
    }
    strange as isize >= 0
}

/// Copies one address. The highest bit of the result is set if the offset is negative or above `last`, so that no
/// branch is needed for each address.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], for one address.
#[inline(always)]
unsafe fn one_within(from: *const *mut u8, to: *mut *mut u8, start: usize, last: usize) -> usize {
    // SAFETY: there is an address to read, by the caller's promise.
    let address = unsafe { from.read() };
    // SAFETY: there is room for an address, by the caller's promise.
    unsafe { to.write(address) };
    let offset = address.addr().wrapping_sub(start);
    offset | last.wrapping_sub(offset)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide {
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::reversed`]; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn reversed(from: *const *mut u8, to: *mut *mut u8, count: usize) {
        let mut done = 0;
        // SAFETY: each step is within the caller's bounds: `done` addresses were copied from the upper end.
        unsafe {
            while done + 4 <= count {
                let four = _mm256_loadu_si256(from.add(count - done - 4).cast());
                _mm256_storeu_si256(to.add(done).cast(), _mm256_permute4x64_epi64::<0b00_01_10_11>(four));
                done += 4;
            }
            if count & 2 != 0 {
                let two = _mm_loadu_si128(from.add(count - done - 2).cast());
                _mm_storeu_si128(to.add(done).cast(), _mm_shuffle_epi32::<0b01_00_11_10>(two));
                done += 2;
            }
            if count & 1 != 0 {
                to.add(done).write(from.read());
            }
        }
    }

    /// # Safety
    /// As [`super::within`]; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn within(
        from: *const *mut u8,
        to: *mut *mut u8,
        count: usize,
        start: usize,
        last: usize,
    ) -> bool {
        // SAFETY: each step is within the caller's bounds: `done` addresses were copied.
        unsafe {
            let (starts, lasts) = (_mm256_set1_epi64x(start as i64), _mm256_set1_epi64x(last as i64));
            let mut strange = _mm256_setzero_si256();
            let mut done = 0;
            if count & 1 != 0 {
                let one = super::one_within(from, to, start, last);
                strange = _mm256_set1_epi64x(one as i64);
                done = 1;
            }
            if count & 2 != 0 {
                let two = _mm_loadu_si128(from.add(done).cast());
                _mm_storeu_si128(to.add(done).cast(), two);
                let offsets = _mm_sub_epi64(two, _mm256_castsi256_si128(starts));
                let beyond = _mm_sub_epi64(_mm256_castsi256_si128(lasts), offsets);
                // Both halves of the register get the two values.
                let both = _mm256_broadcastsi128_si256(_mm_or_si128(offsets, beyond));
                strange = _mm256_or_si256(strange, both);
                done += 2;
            }
            while done < count {
                let four = _mm256_loadu_si256(from.add(done).cast());
                _mm256_storeu_si256(to.add(done).cast(), four);
                let offsets = _mm256_sub_epi64(four, starts);
                let beyond = _mm256_sub_epi64(lasts, offsets);
                strange = _mm256_or_si256(strange, _mm256_or_si256(offsets, beyond));
                done += 4;
            }
            _mm256_movemask_pd(_mm256_castsi256_pd(strange)) == 0
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// Copies of each length, with and without wide registers, and with one foreign address at each place.
    #[test]
    fn addresses_are_reversed_and_strangers_found_wherever_they_are() {
        let (start, last) = (4096usize, 1023usize);
        let at = std::ptr::without_provenance_mut::<u8>;
        for count in 0..40 {
            let from: Vec<_> = (0..count).map(|index| at(start + 16 * index)).collect();
            let mut to = vec![std::ptr::null_mut(); count + 1];
            // SAFETY: there is room for all addresses.
            unsafe { reversed(from.as_ptr(), to.as_mut_ptr(), count) };
            assert!(to[..count].iter().eq(from.iter().rev()) && to[count].is_null());
            // SAFETY: there is room for all addresses.
            assert!(unsafe { within(from.as_ptr(), to.as_mut_ptr(), count, start, last) });
            assert!(to[..count] == from[..] && to[count].is_null());
            for (place, strange) in (0..count).flat_map(|place| {
                [0, start - 1, start + last + 1, usize::MAX].map(|address| (place, address))
            }) {
                let mut from = from.clone();
                from[place] = at(strange);
                // SAFETY: there is room for all addresses.
                assert!(!unsafe { within(from.as_ptr(), to.as_mut_ptr(), count, start, last) });
                assert!(to[..count] == from[..]);
                from[place] = at(start + last);
                // SAFETY: there is room for all addresses.
                assert!(unsafe { within(from.as_ptr(), to.as_mut_ptr(), count, start, last) });
            }
        }
    }
}
