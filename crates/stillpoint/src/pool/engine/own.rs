//! Values that only the holder of a shard changes and that others read for counts alone.
//!
//! Outside of models they are relaxed atomics: a reader gets some value that was stored, and nothing is concluded from
//! it. In a model they are cells whose accesses loom checks: two holders at a time are found.

macro_rules! own {
    ($($name:ident: $value:ty, $atomic:ident;)*) => {$(
        #[cfg(not(loom))]
        #[derive(Debug)]
        pub(crate) struct $name(std::sync::atomic::$atomic);

        #[cfg(not(loom))]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(std::sync::atomic::$atomic::new(value))
            }

            #[inline(always)]
            pub(crate) fn get(&self) -> $value {
                // Relaxed: the holder reads what it, or the holder before it, has stored; for others see above.
                self.0.load(std::sync::atomic::Ordering::Relaxed)
            }

            #[inline(always)]
            pub(crate) fn set(&self, value: $value) {
                // Relaxed: as above.
                self.0.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }

        #[cfg(loom)]
        #[derive(Debug)]
        pub(crate) struct $name(loom::cell::UnsafeCell<$value>, std::sync::atomic::$atomic);

        // SAFETY: whether accesses are ordered is what the models check.
        #[cfg(loom)]
        unsafe impl Sync for $name {}

        #[cfg(loom)]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::cell::UnsafeCell::new(value), std::sync::atomic::$atomic::new(value))
            }

            pub(crate) fn get(&self) -> $value {
                // SAFETY: loom reports an access that is not ordered with a change.
                self.0.with(|value| unsafe { *value })
            }

            pub(crate) fn set(&self, value: $value) {
                // SAFETY: as above.
                self.0.with_mut(|place| unsafe { *place = value });
                self.1.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    )*};
}

impl OwnUsize {
    /// Adds this number to the count.
    #[inline(always)]
    pub(crate) fn count(&self, more: usize) {
        self.set(self.get().wrapping_add(more));
    }
}

impl Default for OwnUsize {
    fn default() -> Self {
        Self::new(0)
    }
}

own! {
    OwnU32: u32, AtomicU32;
    OwnU64: u64, AtomicU64;
    OwnUsize: usize, AtomicUsize;
    OwnIsize: isize, AtomicIsize;
}

impl OwnU64 {
    /// For somebody who is not the holder, and cares only for bits that nobody changes meanwhile: a cell would not know the
    /// difference.
    pub(crate) fn peek(&self) -> u64 {
        #[cfg(not(loom))]
        let value = &self.0;
        #[cfg(loom)]
        let value = &self.1;
        // Relaxed: these bits were stored before the objects were handed out by whose return the caller comes here.
        value.load(std::sync::atomic::Ordering::Relaxed)
    }
}
