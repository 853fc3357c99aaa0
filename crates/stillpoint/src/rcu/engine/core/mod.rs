//! The protocol: readers announce themselves, the writer starts tokens, fences, and looks at them.

pub(crate) mod garbage;
pub(crate) mod grace;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod registry;
