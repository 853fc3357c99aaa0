use core::num::NonZeroU64;

/// Names a timer of a [`Wheel`](super::Wheel), from the addition to the expiry or the cancellation.
///
/// A key that is kept for longer is recognised: each use of a place has a generation of its own, and a place whose
/// generations are used up is never used again, but replaced. So what is done with a stale key does nothing.
///
/// Every wheel begins with a generation of its own, far from those of the others: the key of another wheel can be taken for
/// one of this wheel's only when a place has been used some 2³¹ times divided by the number of wheels made so far. A key is
/// 8 bytes, and so is `Option<Key>`.
///
/// ```
/// use stillpoint::timer::Wheel;
///
/// let mut wheel = Wheel::new(0);
/// let key = wheel.add(10, "ten")?;
/// assert_eq!(wheel.cancel(key), Some("ten"));
/// wheel.add(20, "twenty")?; // in the same place
/// assert_eq!(wheel.cancel(key), None);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(NonZeroU64);

impl Key {
    #[inline]
    pub(super) fn new(index: u32, generation: u32) -> Self {
        let bits = u64::from(generation) << 32 | u64::from(index);
        // The first indices are those of sentinels: no key is 0.
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

    /// The key as a number, to be carried by code that knows numbers alone. It is never 0.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The key that [`to_bits`](Self::to_bits) made; `None` for 0. Any other number is a stale key at worst, or names
    /// another timer.
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
