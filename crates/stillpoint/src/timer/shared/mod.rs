//! The wheel of a thread, with mailboxes for other threads.

// A circle of files: `home`, `record` and `ring`. A record keeps its home, whose hints are records, and whose rings carry them.

mod alarm;
mod arm_error;
mod entry;
mod event;
mod home;
mod mailbox;
mod record;
mod rest;
mod ring;
mod serve;
mod service;
mod timer;

pub use alarm::{Alarm, Sleep};
pub use arm_error::ArmError;
pub use event::{Cause, Event};
pub use mailbox::{Burst, Mailbox, Remote};
pub use record::Outcome;
pub use service::TimerService;
pub use timer::SharedTimer;
