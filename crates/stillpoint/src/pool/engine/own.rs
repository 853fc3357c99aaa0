//! Values that only the holder of a shard changes. Other threads read them only for counts.
//!
//! Outside models, they are relaxed atomics: another thread reads some value that was stored, and concludes nothing
//! from it. In a model, they are cells whose accesses loom checks, so loom reports two holders at a time.

macro_rules! own {
    ($($name:ident: $value:ty, $atomic:ident;)*) => {$(
        #[cfg(not(stillpoint_loom))]
        #[derive(Debug)]
        pub(crate) struct $name(std::sync::atomic::$atomic);

        #[cfg(not(stillpoint_loom))]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(std::sync::atomic::$atomic::new(value))
            }

            #[inline(always)]
            pub(crate) fn get(&self) -> $value {
                // Relaxed: the holder reads a value that it, or the holder before it, has stored. For other threads,
                // see the module's documentation.
                self.0.load(std::sync::atomic::Ordering::Relaxed)
            }

            #[inline(always)]
            pub(crate) fn set(&self, value: $value) {
                // Relaxed: only the holder reads more than a count. A shard changes holders by a release and an
                // acquire.
                self.0.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }

        #[cfg(stillpoint_loom)]
        #[derive(Debug)]
        pub(crate) struct $name(loom::cell::UnsafeCell<$value>, std::sync::atomic::$atomic);

        // SAFETY: the models check that accesses are ordered.
        #[cfg(stillpoint_loom)]
        unsafe impl Sync for $name {}

        #[cfg(stillpoint_loom)]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::cell::UnsafeCell::new(value), std::sync::atomic::$atomic::new(value))
            }

            pub(crate) fn get(&self) -> $value {
                // SAFETY: loom reports an access that is not ordered with a change.
                self.0.with(|value| unsafe { *value })
            }

            pub(crate) fn set(&self, value: $value) {
                // SAFETY: loom reports an access that is not ordered with this change.
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
    /// For a thread that is not the holder, and that uses only bits that do not change meanwhile. In a model this reads
    /// an atomic copy, since a cell would report other bits that change.
    pub(crate) fn peek(&self) -> u64 {
        #[cfg(not(stillpoint_loom))]
        let value = &self.0;
        #[cfg(stillpoint_loom)]
        let value = &self.1;
        // Relaxed: these bits were stored before the objects were allocated, and the caller has received the freed
        // objects.
        value.load(std::sync::atomic::Ordering::Relaxed)
    }
}
