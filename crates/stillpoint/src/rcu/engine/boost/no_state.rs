//! What a thread keeps for its boosters in a build without the feature `boost`: nothing.

/// Has no values.
pub(crate) enum BoostState {}

impl BoostState {
    pub(crate) fn add_holder(&self) {}

    pub(crate) fn remove_holder(&self) {}
}

pub(crate) fn own() -> Option<&'static BoostState> {
    None
}
