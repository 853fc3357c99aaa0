//! How an object is held: the kind of reader, and the fences of its domain.

use std::fmt;

use stillpoint::fence::Mode;

/// How an object is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
}

/// The kind of reader that holds an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Protected,
    Guard,
    Qsbr,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Protected, Kind::Guard, Kind::Qsbr];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::Protected => "protected load",
            Kind::Guard => "guard",
            Kind::Qsbr => "QSBR section",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} ({} fences)", self.kind.text(), self.mode)
    }
}
