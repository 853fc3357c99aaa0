//! The layout of objects: strides, buckets, rows, bits.

use crate::pool::error::BuildError;

/// A cache line of x86-64, and of most aarch64.
const LINE: usize = 64;
/// The smallest stride. (The reciprocal of 1 would not fit into 64 bits.)
const LEAST: usize = 8;
/// A bucket may have this size even if the pool needs less, since memory comes in pages.
const SPARE: usize = 64 << 10;
/// Objects of a row: the number of bits in its words.
pub(crate) const ROW: u32 = 64;
/// The largest bucket, so that an offset in it has less than 32 bits.
const LARGEST_BUCKET: usize = 1 << 30;

/// The layout of a pool: object `i` of bucket `b` begins at byte `b * bucket + i * stride`, and in every other bucket
/// [`colour`](Geometry::colour) bytes later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    stride: usize,
    /// 2^64 divided by the stride, rounded up.
    reciprocal: u64,
    bucket_shift: u32,
    objects: u32,
    rows: u32,
    align: usize,
    /// Bytes by which the objects of every other bucket are moved up: a cache line if there is room, otherwise 0.
    colour: usize,
}

/// A bit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) row: u32,
    pub(crate) bit: u32,
}

impl Geometry {
    #[cfg(test)]
    pub(crate) fn new(
        size: usize,
        align: usize,
        bucket_bytes: Option<usize>,
        capacity: usize,
    ) -> Result<Self, BuildError> {
        Self::with_stride(size, align, None, bucket_bytes, capacity)
    }

    /// The layout for objects of `size` and `align`. `set` is the distance from one object to the next, if the caller
    /// chose it. Without `bucket_bytes`, chooses the largest bucket of at most 64 objects, which is one row. Unless the
    /// bucket is small, `capacity` objects fill at least half of it.
    pub(crate) fn with_stride(
        size: usize,
        align: usize,
        set: Option<usize>,
        bucket_bytes: Option<usize>,
        capacity: usize,
    ) -> Result<Self, BuildError> {
        let impossible = BuildError::Object { size, align };
        if size == 0 || !align.is_power_of_two() || size > LARGEST_BUCKET || align > LARGEST_BUCKET {
            return Err(impossible);
        }
        let least = size.next_multiple_of(align).max(LEAST.next_multiple_of(align));
        let stride = match set {
            Some(set) if set < least || set % align != 0 || set > LARGEST_BUCKET => {
                return Err(BuildError::Stride { bytes: set, least, align })
            }
            Some(set) => set,
            None => stride(size, align),
        };
        if stride > LARGEST_BUCKET {
            return Err(impossible);
        }
        let most = stride.saturating_mul(ROW as usize).min(LARGEST_BUCKET);
        let bucket = match bucket_bytes {
            None => {
                // A capacity of 0 is refused later.
                let needed = stride.saturating_mul(capacity.max(1)).clamp(SPARE, LARGEST_BUCKET);
                (1 << most.ilog2()).min(needed.next_power_of_two())
            }
            Some(bytes) if !bytes.is_power_of_two() || !(stride..=LARGEST_BUCKET).contains(&bytes) => {
                return Err(BuildError::Bucket { bytes, least: stride.next_power_of_two() })
            }
            Some(bytes) => bytes,
        };
        let objects = (bucket / stride) as u32;
        Ok(Self {
            stride,
            reciprocal: (u64::MAX / stride as u64) + 1,
            bucket_shift: bucket.trailing_zeros(),
            objects,
            rows: objects.div_ceil(ROW),
            align,
            colour: if stride >= LINE && align <= LINE && bucket - objects as usize * stride >= LINE {
                LINE
            } else {
                0
            },
        })
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn align(&self) -> usize {
        self.align
    }

    pub(crate) fn bucket_bytes(&self) -> usize {
        1 << self.bucket_shift
    }

    /// Bytes by which the objects of every other bucket are moved up.
    pub(crate) fn colour(&self) -> usize {
        self.colour
    }

    /// Objects of a bucket.
    #[inline(always)]
    pub(crate) fn objects(&self) -> u32 {
        self.objects
    }

    /// Rows of a bucket.
    #[inline(always)]
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// The first row of the bucket that `row` belongs to. A bucket is named by its first row.
    #[inline(always)]
    pub(crate) fn bucket_of(&self, row: u32) -> u32 {
        if self.rows == 1 {
            row
        } else {
            row - row % self.rows
        }
    }

    /// Objects of a row.
    #[inline(always)]
    pub(crate) fn in_row(&self, row: u32) -> u32 {
        let within = if self.rows == 1 { 0 } else { row % self.rows };
        (self.objects - within * ROW).min(ROW)
    }

    /// One bit for each object of a row.
    #[inline(always)]
    pub(crate) fn full(&self, row: u32) -> u64 {
        u64::MAX >> (ROW - self.in_row(row))
    }

    /// The offset of a bucket's first object. Without this shift, the first lines of the objects of all buckets would
    /// use the same half of the cache's sets, if the stride is an odd number of lines and a bucket has fewer objects
    /// than the cache has sets.
    #[inline(always)]
    fn shift(&self, bucket: usize) -> usize {
        (bucket & 1) * self.colour
    }

    /// The number of the object that begins this far behind the first one of its bucket, if one may. Of more than 32
    /// bits, the answer means nothing.
    #[inline(always)]
    pub(crate) fn index_of(&self, within: usize) -> Option<u32> {
        // Division by multiplication, exact for dividends and divisors of 32 bits: D. Lemire, O. Kaser, N. Kurz,
        // "Faster remainder by direct computation", Software: Practice and Experience 49(6), 2019.
        let product = within as u128 * u128::from(self.reciprocal);
        ((product as u64) < self.reciprocal).then_some((product >> 64) as u32)
    }

    /// The object that begins at `offset`, if one does.
    #[inline(always)]
    pub(crate) fn place(&self, offset: usize) -> Option<Place> {
        let bucket = (offset >> self.bucket_shift) as u32;
        let within = (offset & (self.bucket_bytes() - 1)).checked_sub(self.shift(bucket as usize))?;
        let index = self.index_of(within).filter(|index| *index < self.objects)?;
        Some(if self.rows == 1 {
            Place { row: bucket, bit: index }
        } else {
            Place { row: bucket * self.rows + index / ROW, bit: index % ROW }
        })
    }

    /// The offset of an object.
    #[inline(always)]
    pub(crate) fn offset(&self, place: Place) -> usize {
        if self.rows == 1 {
            let bucket = place.row as usize;
            (bucket << self.bucket_shift) + self.shift(bucket) + place.bit as usize * self.stride
        } else {
            let (bucket, within) = ((place.row / self.rows) as usize, place.row % self.rows);
            let index = (within * ROW + place.bit) as usize;
            (bucket << self.bucket_shift) + self.shift(bucket) + index * self.stride
        }
    }
}

/// The default stride: an odd number of cache lines, unless the alignment forbids it or the object is smaller than a
/// line. A power of two would put the same field of all objects into a few sets of the cache.
fn stride(size: usize, align: usize) -> usize {
    let aligned = size.next_multiple_of(align).max(LEAST);
    if aligned < LINE {
        return aligned;
    }
    let whole = aligned.next_multiple_of(LINE.max(align));
    if align <= LINE && (whole / LINE) % 2 == 0 {
        whole + LINE
    } else {
        whole
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// A capacity that needs more than one bucket of any size.
    const MANY: usize = usize::MAX;

    #[test]
    fn a_stride_may_be_set() {
        let of = |size, align, set| Geometry::with_stride(size, align, Some(set), Some(1 << 16), MANY);
        let geometry = of(2048, 64, 2048).unwrap();
        assert_eq!((geometry.stride(), geometry.objects()), (2048, 32));
        for (size, align, set) in [(2048, 64, 2112), (100, 4, 132), (24, 8, 24), (1, 1, 9), (40, 8, 4096)] {
            let geometry = of(size, align, set).unwrap();
            let found: Vec<usize> = (1 << 16..2 << 16).filter(|at| geometry.place(*at).is_some()).collect();
            assert_eq!(found.len(), geometry.objects() as usize);
            assert!(found.windows(2).all(|pair| pair[1] - pair[0] == set));
            assert!(found.iter().all(|at| geometry.offset(geometry.place(*at).unwrap()) == *at));
        }
        for (size, align, set, least) in
            [(2048, 64, 2000, 2048), (2048, 64, 2050, 2048), (8, 8, 0, 8), (1, 1, 7, 8), (1, 16, 8, 16)]
        {
            assert!(
                matches!(of(size, align, set), Err(BuildError::Stride { least: found, .. }) if found == least)
            );
        }
        assert!(matches!(of(8, 8, LARGEST_BUCKET + 8), Err(BuildError::Stride { least: 8, .. })));
    }

    #[test]
    fn packets_get_an_odd_number_of_lines() {
        let geometry = Geometry::new(2048, 64, None, MANY).unwrap();
        assert_eq!((geometry.stride(), geometry.bucket_bytes(), geometry.objects()), (2112, 128 << 10, 62));
        let as_dpdk = Geometry::new(2048, 64, Some(64 << 10), MANY).unwrap();
        assert_eq!(as_dpdk.objects(), 31);
        assert_eq!(Geometry::new(2048, 4096, None, MANY).unwrap().stride(), 4096);
        assert_eq!(Geometry::new(1, 1, None, MANY).unwrap().stride(), 8);
        assert_eq!(Geometry::new(64, 8, None, MANY).unwrap().objects(), 64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "only arithmetic, and much of it")]
    fn every_object_is_found_by_its_address_and_nothing_else_is() {
        let shapes =
            [(2048, 64, None), (24, 8, None), (1, 1, Some(4096)), (100, 4, Some(1 << 16)), (8, 8, None)];
        for (size, align, bucket) in shapes.into_iter().chain([(1 << 20, 4096, Some(1 << 20))]) {
            let geometry = Geometry::new(size, align, bucket, MANY).unwrap();
            let bytes = geometry.bucket_bytes();
            let mut found = 0;
            for offset in (bytes * 3..bytes * 4).step_by(if bytes > 1 << 17 { 64 } else { 1 }) {
                let within = (offset - bytes * 3).checked_sub(geometry.colour);
                let expected = within.is_some_and(|within| {
                    within % geometry.stride() == 0
                        && within / geometry.stride() < geometry.objects() as usize
                });
                let place = geometry.place(offset);
                assert_eq!(place.is_some(), expected, "{offset} of {geometry:?}");
                if let Some(place) = place {
                    assert_eq!(geometry.offset(place), offset);
                    assert_eq!(geometry.bucket_of(place.row), 3 * geometry.rows());
                    assert!(geometry.full(place.row) >> place.bit & 1 == 1);
                    found += 1;
                }
            }
            assert_eq!(found, geometry.objects());
        }
    }

    #[test]
    fn neighbouring_buckets_use_different_sets_of_the_cache() {
        let geometry = Geometry::new(2048, 64, Some(64 << 10), MANY).unwrap();
        let sets = (0..2).flat_map(|row| (0..31).map(move |bit| Place { row, bit }));
        let sets: std::collections::HashSet<usize> =
            sets.map(|place| geometry.offset(place) / LINE % 64).collect();
        assert_eq!(sets.len(), 62);
    }

    #[test]
    fn the_largest_bucket_holds_one_object_of_its_size() {
        for bucket in [None, Some(LARGEST_BUCKET)] {
            let geometry = Geometry::new(LARGEST_BUCKET, 4096, bucket, MANY).unwrap();
            assert_eq!((geometry.stride(), geometry.bucket_bytes()), (LARGEST_BUCKET, LARGEST_BUCKET));
            assert_eq!((geometry.objects(), geometry.place(8)), (1, None));
        }
        assert!(matches!(Geometry::new(LARGEST_BUCKET, 8, None, MANY), Err(BuildError::Object { .. })));
        assert!(matches!(
            Geometry::new(LARGEST_BUCKET + 1, 4096, None, MANY),
            Err(BuildError::Object { .. })
        ));
    }

    #[test]
    fn impossible_shapes_are_told_apart() {
        let of = |size, align, bucket| Geometry::new(size, align, bucket, MANY).unwrap_err();
        assert!(matches!(of(0, 8, None), BuildError::Object { size: 0, align: 8 }));
        assert!(matches!(of(usize::MAX, 8, None), BuildError::Object { .. }));
        assert!(matches!(of(8, 0, None), BuildError::Object { .. }));
        assert!(matches!(of(8, 24, None), BuildError::Object { .. }));
        assert!(matches!(of(8, 1 << 40, None), BuildError::Object { .. }));
        assert!(matches!(of(8, 8, Some(100)), BuildError::Bucket { least: 8, .. }));
        assert!(matches!(of(2048, 8, Some(2048)), BuildError::Bucket { bytes: 2048, least: 4096 }));
        assert!(matches!(of(8, 8, Some(1 << 31)), BuildError::Bucket { least: 8, .. }));
    }
}
