//! Why a command ends without its result, and its exit code.

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
    /// A check failed, as it was meant to: exit code 1, and no error.
    #[error("{0}")]
    Caught(String),
}

impl Stop {
    /// A request that cannot be carried out.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The exit code of the program.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Caught(_) => ExitCode::from(1),
        }
    }
}
