//! The same items for a build without a C compiler.

use super::TimerContender;
use crate::absent::{absent, never};

absent!("this build has no C compiler: install gcc and build again": htimer(usize) -> Box<dyn TimerContender>;);

/// There is no value of this type.
#[derive(Clone, Copy)]
pub enum HtimerAddress {}

never!(HtimerTarget::new(usize) fails: "this build has no C compiler: install gcc and build again";
    address(&Self) -> HtimerAddress;
    process(&mut Self) -> usize;
    add(&mut Self, &[u64]) -> usize;
    cancel(&mut Self, &[u32]) -> usize;
);

never!(HtimerSource::new(usize) fails: "this build has no C compiler: install gcc and build again";
    ask(&mut Self, HtimerAddress, &[u64], usize) -> usize;
    ask_to_cancel(&mut Self) -> usize;
    take_results(&mut Self) -> usize;
    told(&mut Self) -> (usize, usize);
);
