//! How a writer's fence reaches the readers. The process probes this once; the program may choose it.

use std::fmt;

#[cfg(not(any(stillpoint_loom, miri)))]
use stillpoint_sys::sync::Lasting;

use super::{FenceError, Mode};

/// How a writer's fence reaches the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The system call membarrier, private expedited. Reaches every thread of the process.
    Membarrier,
    /// The kernel module `stillpoint_membarrier`, which sends along a tree. Reaches every thread of the process.
    Module,
    /// No heavy fence: readers issue full fences themselves.
    Plain,
}

impl Backend {
    /// Every back end, in order of preference.
    pub const ALL: [Backend; 3] = [Backend::Membarrier, Backend::Module, Backend::Plain];

    /// Whether this process may use the back end. For membarrier, the first probe of the process issues a fence, and later probes
    /// return the same answer, until a thread is refused for good.
    ///
    /// # Errors
    /// Why the process may not use it.
    ///
    /// ```
    /// use stillpoint::fence::Backend;
    /// assert!(Backend::Plain.probe().is_ok());
    /// ```
    pub fn probe(self) -> Result<(), FenceError> {
        match self {
            #[cfg(not(any(stillpoint_loom, miri)))]
            Backend::Membarrier => super::membarrier::register(),
            #[cfg(not(any(stillpoint_loom, miri)))]
            Backend::Module => super::module::open().map(drop),
            #[cfg(any(stillpoint_loom, miri))]
            Backend::Membarrier | Backend::Module => Ok(()),
            Backend::Plain => Ok(()),
        }
    }

    /// The mode of domains that use this back end.
    pub(super) fn mode(self) -> Mode {
        match self {
            Backend::Membarrier | Backend::Module => Mode::Asymmetric,
            Backend::Plain => Mode::Symmetric,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Membarrier => "membarrier",
            Backend::Module => "the module stillpoint_membarrier",
            Backend::Plain => "fences of the readers",
        })
    }
}

/// The back end that the process uses, once it is known.
#[cfg(not(any(stillpoint_loom, miri)))]
static USED: Lasting<Backend> = Lasting::new();

/// The back end of this process: the one that was [chosen](choose); otherwise membarrier; otherwise the module; otherwise
/// `Plain`. The first call of this function, or of any other that depends on it, decides. Later calls return the same, also if
/// the kernel refuses that back end by then; [`Mode::best`] does not.
///
/// ```
/// use stillpoint::fence;
///
/// println!("writers fence by {}", fence::backend());
/// assert!(fence::backend().probe().is_ok()); // no filter was installed meanwhile
/// ```
pub fn backend() -> Backend {
    #[cfg(not(any(stillpoint_loom, miri)))]
    return *USED.get_or_make(|| {
        let wide = [Backend::Membarrier, Backend::Module];
        wide.into_iter().find(|backend| backend.probe().is_ok()).unwrap_or(Backend::Plain)
    });
    #[cfg(any(stillpoint_loom, miri))]
    Backend::Membarrier
}

/// Chooses the back end. Call it before anything depends on the back end, which decides what [`Mode::best`] is, and how
/// [`heavy`](super::heavy) fences.
///
/// # Errors
/// If the process may not use it, or uses another one already.
///
/// ```
/// use stillpoint::fence::{self, Backend, Mode};
/// fence::choose(Backend::Plain)?; // as the first thing in `main`
/// assert_eq!(Mode::best(), Mode::Symmetric);
/// assert!(fence::choose(Backend::Membarrier).is_err());
/// # Ok::<(), fence::ChooseError>(())
/// ```
pub fn choose(backend: Backend) -> Result<(), ChooseError> {
    backend.probe().map_err(ChooseError::Refused)?;
    #[cfg(not(any(stillpoint_loom, miri)))]
    let used = *USED.get_or_make(|| backend);
    #[cfg(any(stillpoint_loom, miri))]
    let used = self::backend();
    if used == backend {
        Ok(())
    } else {
        Err(ChooseError::InUse(used))
    }
}

/// Why a back end could not be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChooseError {
    /// This process may not use the back end.
    Refused(FenceError),
    /// This back end is in use already.
    InUse(Backend),
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "the back end is unavailable: {error}"),
            Self::InUse(backend) => {
                write!(f, "this process fences by {backend} already; choose before the first domain is made")
            }
        }
    }
}

impl std::error::Error for ChooseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::InUse(_) => None,
        }
    }
}
