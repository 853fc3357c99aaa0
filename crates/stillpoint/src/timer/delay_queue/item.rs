use std::time::Instant;

use crate::timer::hands_back::hands_back;
use crate::timer::Key;

/// An item that a [`DelayQueue`](super::DelayQueue) has handed out, with its deadline and its key.
///
/// ```
/// use std::time::{Duration, Instant};
/// use stillpoint::timer::delay_queue::DelayQueue;
///
/// let queue = DelayQueue::new();
/// let key = queue.insert(vec!["login"], Duration::ZERO)?;
/// let mut item = queue.wait().expect("the queue is open");
/// item.get_mut().push("logout");
/// assert_eq!(item.get_ref().len(), 2);
/// assert!(item.key() == key && item.deadline() <= Instant::now());
/// assert_eq!(item.into_inner(), ["login", "logout"]);
/// # Ok::<(), stillpoint::timer::delay_queue::InsertError<Vec<&str>>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delayed<T> {
    pub(super) value: T,
    pub(super) deadline: Instant,
    pub(super) key: Key,
}

impl<T> Delayed<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// The value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// When the item is, or was, due: the deadline of its insertion or of its last reset, rounded up by less than 1,024 ns.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The key that the item had in the queue. It is stale.
    pub fn key(&self) -> Key {
        self.key
    }
}

/// Why an item was not inserted into a [`DelayQueue`](super::DelayQueue). [`into_inner`](InsertError::into_inner) hands its value
/// back, whatever the reason.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::delay_queue::{DelayQueue, InsertError};
///
/// let queue = DelayQueue::with_max_len(1);
/// queue.insert("first", Duration::from_secs(1))?;
/// let error = queue.insert("second", Duration::from_secs(1)).unwrap_err();
/// assert_eq!(error, InsertError::Full("second"));
///
/// queue.close();
/// let error = queue.insert("third", Duration::from_secs(1)).unwrap_err();
/// assert_eq!(error, InsertError::Closed("third"));
/// assert_eq!(error.into_inner(), "third");
/// # Ok::<(), InsertError<&str>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError<T> {
    /// The queue is at its limit, or there is no memory.
    Full(T),
    /// The queue is closed.
    Closed(T),
}

hands_back! {
    InsertError: "the item was not inserted: ",
    Full: "the queue has no room for another item: remove some, or make it with a higher limit",
    Closed: "the queue is closed: no item is inserted after that",
}
