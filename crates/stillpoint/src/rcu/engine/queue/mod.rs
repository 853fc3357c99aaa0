//! What was retired and is not freed: who has it, how much of it there may be, and how it changes hands.

pub(crate) mod callbacks;
pub(crate) mod inbox;
pub(crate) mod orphans;
pub(crate) mod quota;
pub(crate) mod retire_list;
pub(crate) mod shelf;
pub(crate) mod stack;
