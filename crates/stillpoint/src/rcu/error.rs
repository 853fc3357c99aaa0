use std::error::Error;
use std::fmt;

use super::boost::Boost;
use crate::fence::FenceError;

/// Why a domain could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The fence mode that was asked for needs heavy fences, which the kernel refuses.
    Asymmetric(FenceError),
    /// This process may not boost readers in the way that was asked for, and there is no fallback.
    Boost {
        /// The way that was asked for.
        boost: Boost,
        /// The error number of the system call, as in `errno.h`.
        errno: i32,
    },
    /// The default domain exists already, because something has used it or built it.
    DefaultInUse,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asymmetric(error) => write!(f, "the fence mode is unavailable: {error}"),
            Self::Boost { boost, errno } => write!(
                f,
                "the kernel refused to boost preempted readers ({boost:?}: {}); this needs the capability \
                 CAP_SYS_NICE, or a limit of real-time priorities of at least 1 (RLIMIT_RTPRIO, `ulimit -r`), and \
                 real-time tasks allowed in the control group; or declare another way with `boost_fallback`",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::DefaultInUse => f.write_str(
                "the default domain is in use already; build it before anything uses it, first in `main`",
            ),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Asymmetric(error) => Some(error),
            Self::Boost { .. } | Self::DefaultInUse => None,
        }
    }
}
