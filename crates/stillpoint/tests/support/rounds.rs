//! How long tests with random operations run.

/// What `STILLPOINT_TEST_ROUNDS` says; 1 without it.
pub(crate) fn rounds() -> usize {
    std::env::var("STILLPOINT_TEST_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number of rounds"))
}
