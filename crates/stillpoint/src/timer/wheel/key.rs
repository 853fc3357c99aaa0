use core::num::NonZeroU64;

/// Identifies a timer of a [`Wheel`](super::Wheel), from its addition to its expiry or cancellation.
///
/// A key that is kept for longer is stale, and operations with it do nothing. Each use of a place has its own
/// generation, and a place whose generations are used up is replaced.
///
/// Every wheel begins with a different generation, far from those of the others. The key of another wheel can be
/// mistaken for one of this wheel only after one place has been used about 2³¹ / *w* times, where *w* is the number of
/// wheels made so far. A key is 8 bytes, and so is `Option<Key>`.
///
/// ```
/// use stillpoint::timer::Wheel;
///
/// let mut wheel = Wheel::new(0);
/// let key = wheel.add(10, "ten")?;
/// assert_eq!(wheel.cancel(key), Some("ten"));
/// wheel.add(20, "twenty")?; // this timer takes the same place
/// assert_eq!(wheel.cancel(key), None);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(NonZeroU64);

impl Key {
    #[inline]
    pub(super) fn new(index: u32, generation: u32) -> Self {
        let bits = u64::from(generation) << 32 | u64::from(index);
        // The first indices are those of list heads, so no key is 0.
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// The key as a number, for code that can carry only numbers. Never 0.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The key of a number from [`to_bits`](Self::to_bits); `None` for 0. A number that did not come from there gives a
    /// stale key, or the key of some timer.
    ///
    /// ```
    /// use stillpoint::timer::{Key, Wheel};
    ///
    /// let key = Wheel::new(0).add(10, ()).expect("there is memory");
    /// assert_eq!(Key::from_bits(key.to_bits()), Some(key));
    /// assert_eq!(Key::from_bits(0), None);
    /// ```
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
    }
}
