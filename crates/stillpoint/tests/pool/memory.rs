//! What memory is made of, and where it lies.

use stillpoint::pool::{Backing, Pages, PoolBuilder, Region};

use super::skip::skipped;

#[test]
fn small_pages_have_no_address_for_devices() {
    let region = Region::new(1 << 16, Pages::Small, None).unwrap();
    assert_eq!((region.backing(), region.bytes(), region.node()), (Backing::Small, 1 << 16, None));
    assert_eq!(region.iova(region.start().as_ptr()), None);
    assert_eq!(region.physically_contiguous(0..4096), None);
    let pool = PoolBuilder::new(10).pages(Pages::Small).build(|| 0u64).unwrap();
    let local = pool.local().unwrap();
    assert_eq!(pool.iova(&local.alloc().unwrap()), None);
}

#[test]
fn memory_is_zeroed_and_ends_where_it_says() {
    let region = Region::new(5000, Pages::Best, None).unwrap();
    // SAFETY: the region's memory, which is this test's.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), region.bytes()) };
    assert!(bytes.iter().all(|&byte| byte == 0));
    bytes.fill(1);
    assert_eq!(region.iova(region.start().as_ptr().wrapping_add(5000)), None);
    assert_eq!(region.physically_contiguous(0..5001), None);
}

/// Where there are reserved huge pages; elsewhere the request is refused, and that is looked at in `bad_input`.
#[test]
fn reserved_pages_stay_where_they_are() {
    let region = match Region::new(3 << 20, Pages::Reserved, None) {
        Ok(region) => region,
        Err(error) => return skipped(&error.to_string()),
    };
    assert_eq!(region.backing(), Backing::Reserved);
    assert_eq!(region.physically_contiguous(4096..(2 << 20)), Some(true), "within one page");
    let (first, within) = (region.start().as_ptr(), region.start().as_ptr().wrapping_add(12345));
    // The kernel may hide frame numbers.
    let (Some(first), Some(within)) = (region.iova(first), region.iova(within)) else {
        return skipped("the kernel hides frame numbers");
    };
    assert!(first.0 > 0 && first.0 % (2 << 20) == 0, "{first:?}");
    assert_eq!(within.0, first.0 + 12345);
    assert!(region.physically_contiguous(0..3 << 20).is_some());
}

#[test]
fn objects_are_aligned() {
    for (size, align) in [(1, 1), (24, 8), (100, 64), (64, 4096), (5000, 4096), (8, 1 << 22)] {
        let pool = PoolBuilder::new(20).pages(Pages::Small).build_raw(size, align).unwrap();
        let local = pool.local().unwrap();
        let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
        assert!(objects.len() >= 20);
        assert!(objects.iter().all(|object| object.as_ptr().addr() % align == 0), "{size}, {align}");
    }
}

#[test]
fn info_says_what_was_built() {
    let pool = PoolBuilder::new(500)
        .cache(100)
        .high_water(3)
        .locals(9)
        .pages(Pages::Small)
        .build_raw(2048, 64)
        .unwrap();
    let info = pool.info();
    assert_eq!((info.object_bytes, info.stride), (2048, 2112));
    assert_eq!((info.cache, info.high_water, info.locals), (100, 3, 9));
    assert_eq!((info.objects_per_block, info.maximum), (62, 558));
    assert_eq!(info.regions.len(), 1);
    assert_eq!((info.regions[0].buckets, info.regions[0].bytes), (9, 9 * (128 << 10)));
    assert_eq!(info.regions[0].backing, Backing::Small);
}
