use crate::rcu::domain::Domain;
use crate::rcu::wait::token::Token;

/// The number of a token, for places that have room only for a number. Later tokens of a domain have greater numbers; none has 0.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let token = domain.start();
/// assert_eq!(raw::token_of(&domain, raw::number_of(token)), Some(token));
/// ```
#[inline]
pub fn number_of(token: Token) -> u64 {
    token.value
}

/// The token of `domain` with this number, or `None` if the domain has not started such a grace period.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let number = raw::number_of(domain.start());
/// assert!(raw::token_of(&domain, number + 1).is_none());
/// assert!(raw::token_of(&domain, 0).is_none());
/// ```
#[inline]
pub fn token_of(domain: &Domain, number: u64) -> Option<Token> {
    domain.core().protocol.was_started(number).then(|| Token::new(domain.core(), number))
}

/// Whether the grace period with this number has been seen over: [`check`](Domain::check) answers without a look at any reader then. Nothing
/// can panic, so `stillpoint.h` needs no frame that catches it.
///
/// ```
/// use stillpoint::rcu::{raw, Domain};
///
/// let domain = Domain::new();
/// let token = domain.start();
/// let number = raw::number_of(token);
/// assert!(!raw::is_known_over(&domain, number) && domain.check(token) && raw::is_known_over(&domain, number));
/// assert!(!raw::is_known_over(&domain, 0)); // no grace period has this number
/// ```
#[doc(hidden)]
#[inline(always)]
pub fn is_known_over(domain: &Domain, number: u64) -> bool {
    domain.core().protocol.is_known_over(number)
}
