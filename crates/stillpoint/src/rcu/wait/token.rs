use std::cmp::Ordering;
use std::time::Duration;

use crate::rcu::domain::Domain;
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::Core;

/// A grace period that a writer has started: see [`Domain::start`].
///
/// Tokens of a domain are ordered: when a later one is over, so is an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    pub(in crate::rcu) value: u64,
    domain: u64,
}

impl Token {
    pub(crate) fn new(core: &Core, value: u64) -> Self {
        Self { value, domain: core.id() }
    }
}

/// Tokens of different domains are not ordered.
impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.domain == other.domain).then(|| self.value.cmp(&other.value))
    }
}

impl Domain {
    /// Starts a grace period and returns at once. Costs one atomic addition.
    ///
    /// The grace period is over when every region reader has passed: no guard and no QSBR reader holds anything
    /// that was unlinked before this call, by this thread or by one that it has synchronized with. The token covers
    /// only region readers. [`Retired`](crate::rcu::Retired) also checks the protected loads.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let token = domain.start();
    /// assert!(!domain.check(token));
    /// drop(guard); // ... while the writer does other work
    /// assert!(domain.check(token));
    /// ```
    #[inline]
    pub fn start(&self) -> Token {
        Token::new(self.core(), self.core().protocol.start())
    }

    /// Whether the grace period of `token` is over. Never waits for a reader.
    ///
    /// The first check of a token issues the fence, heavy if the domain has a [`Reader`](crate::rcu::Reader). A later check first looks at
    /// the reader that held the token up last, then at all readers. A token that is known to be over costs one load.
    ///
    /// Returns false as long as the kernel refuses the fence; [`stats`](Domain::stats) and timed waits say why.
    ///
    /// # Panics
    /// If the token is of another domain.
    #[inline]
    #[track_caller]
    pub fn check(&self, token: Token) -> bool {
        matches!(self.core().protocol.check(self.value_of(token)), Ok(Grace::Over))
    }

    /// Waits until the grace period of `token` is over, without a limit.
    ///
    /// # Errors
    /// As [`synchronize`](Domain::synchronize).
    ///
    /// # Panics
    /// If the token is of another domain.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let token = domain.start();
    /// // ... other work ...
    /// domain.wait(token)?;
    /// assert!(domain.check(token));
    /// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
    /// ```
    #[track_caller]
    pub fn wait(&self, token: Token) -> Result<(), SynchronizeError> {
        self.core().wait_for(self.value_of(token), None)
    }

    /// As [`wait`](Domain::wait), for at most `limit`.
    ///
    /// # Errors
    /// As [`synchronize_timeout`](Domain::synchronize_timeout).
    ///
    /// # Panics
    /// If the token is of another domain.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let other = domain.clone();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let token = domain.start();
    /// let waits = std::thread::spawn(move || other.wait_timeout(token, Duration::from_millis(2)));
    /// assert!(matches!(waits.join().unwrap(), Err(SynchronizeError::Stalled(_))));
    /// drop(guard);
    /// assert_eq!(domain.wait_timeout(token, Duration::from_millis(2)), Ok(()));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, token: Token, limit: Duration) -> Result<(), SynchronizeError> {
        self.core().wait_for(self.value_of(token), Some(limit))
    }

    #[inline(always)]
    #[track_caller]
    pub(in crate::rcu) fn value_of(&self, token: Token) -> u64 {
        if token.domain != self.core().id() {
            self.reject(token);
        }
        token.value
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn reject(&self, token: Token) -> ! {
        let (own, other) = (self.core().id(), token.domain);
        panic!("a token of domain number {other} was used with domain `{}` ({own})", self.name())
    }
}
