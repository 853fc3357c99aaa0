//! Why a command ends without its result, and the exit code that says so.

use std::process::ExitCode;

/// The reason a command stopped, in one line for standard error.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The request cannot be carried out as given, or not on this machine: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A check failed: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Stop {
    /// A request that cannot be carried out.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// What the program ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}
