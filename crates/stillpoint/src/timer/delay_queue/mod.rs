//! [`DelayQueue`]: items that come out when their time has come, for tasks and threads that share the queue.
//!
//! ```
//! use std::time::Duration;
//! use stillpoint::timer::delay_queue::DelayQueue;
//!
//! let queue = DelayQueue::new();
//! std::thread::scope(|scope| {
//!     // Sleeps until an item is due. The insertions below wake it if it sleeps for longer.
//!     let server = scope.spawn(|| std::iter::from_fn(|| queue.wait()).map(|item| item.into_inner()).collect::<Vec<_>>());
//!     let late = queue.insert("never", Duration::from_secs(3_600)).expect("there is memory");
//!     queue.insert("second", Duration::from_millis(2)).expect("there is memory");
//!     queue.insert("first", Duration::from_millis(1)).expect("there is memory");
//!     queue.remove(&late);
//!     queue.close(); // no more insertions: the server ends when the queue is empty
//!     assert_eq!(server.join().unwrap(), ["first", "second"]);
//! });
//! ```
//!
//! | type | is |
//! |---|---|
//! | [`DelayQueue`] | the queue: any task or thread inserts, resets, removes, and waits for the next item |
//! | [`Delayed`] | an item that is handed out, with its deadline and its key |
//! | [`InsertError`] | why an item was not inserted, with its value |
//!
//! Items are named by [`Key`](super::Key)s. The module needs the feature `delay-queue`, and no runtime: a task passes the function
//! by which its runtime sleeps.
//!
//! # Beside tokio-util's `DelayQueue`
//!
//! Names that are the same mean the same, with these differences:
//!
//! | tokio-util | here |
//! |---|---|
//! | one task owns the queue; a `Stream` | tasks and threads share it (`&self`); [`next`](DelayQueue::next) is a future, [`wait`](DelayQueue::wait) blocks |
//! | the end is an empty queue | the end is a queue that was [closed](DelayQueue::close) and is empty |
//! | milliseconds | ticks of 1,024 ns |
//! | items come in the order of milliseconds, and in none within one | [items come in the order of looks at the clock](DelayQueue#order) |
//! | `insert` panics at its limit | [`insert`](DelayQueue::insert) hands the value back |
//! | `Expired` | [`Delayed`] |
//! | `insert` panics for a time that is too far away | it is never due |
//! | `remove`, `reset` and `deadline` panic for a stale key; `try_remove` does not | [`remove`](DelayQueue::remove) and [`deadline`](DelayQueue::deadline) return `None`, and [`reset`](DelayQueue::reset) `false` |
//! | needs tokio's clock | reads the system's clock, or [a clock of your choice](DelayQueue::timed_by) |

mod item;
mod queue;
mod state;
mod time;
mod waiter;
mod waiters;

pub use item::{Delayed, InsertError};
pub use queue::DelayQueue;
