//! Objects that were retired and are not freed: which list has them, how many there may be, and how they change hands.

pub(crate) mod account;
pub(crate) mod callbacks;
pub(crate) mod channel;
pub(crate) mod handover;
pub(crate) mod line;
pub(crate) mod retire_list;
pub(crate) mod shelf;
