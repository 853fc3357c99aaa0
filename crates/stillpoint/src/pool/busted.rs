//! Deliberately broken variants of the pool, as [`crate::busted`] has them of the reclamation: controls for the models. In
//! builds with `--cfg stillpoint_busted`, one is chosen by the environment variable `STILLPOINT_BUSTED_POOL`.

use crate::sync::atomic::Ordering;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// A remote free is relaxed, not acquire and release.
    FreeRelaxed,
    /// The owner takes the remote word by a relaxed exchange.
    CollectRelaxed,
    /// A row is put into the inbox by a relaxed exchange.
    PostRelaxed,
    /// The owner takes its inbox by a relaxed exchange.
    InboxRelaxed,
    /// The next row of the inbox is read after the remote word was taken.
    NextAfterTake,
    /// A remote word is taken without the row's coming from the inbox.
    TakeUnposted,
    /// Every remote free puts its row into the inbox, not only the first one.
    PostAlways,
    /// Buckets go to the store by a relaxed exchange.
    GiveRelaxed,
    /// Buckets come from the store by a relaxed exchange.
    TakeRelaxed,
    /// The store does not number its exchanges.
    Untagged,
    /// A shard is left by a relaxed store.
    LeaveRelaxed,
    /// A shard is adopted by a relaxed exchange.
    AdoptRelaxed,
    /// A thread that ends keeps its shard.
    NeverLeft,
    /// An exhausted allocation claims a bucket although some objects of it have not come back.
    ClaimAnyhow,
    /// An exhausted allocation claims a bucket of which its owner has free objects.
    ClaimFree,
    /// What a rescuer cannot claim is not put back into the inbox.
    RescueForgets,
}

#[cfg(stillpoint_busted)]
impl Variant {
    const ALL: &'static [(Variant, &'static str)] = &[
        (Variant::FreeRelaxed, "free-relaxed"),
        (Variant::CollectRelaxed, "collect-relaxed"),
        (Variant::PostRelaxed, "post-relaxed"),
        (Variant::InboxRelaxed, "inbox-relaxed"),
        (Variant::NextAfterTake, "next-after-take"),
        (Variant::TakeUnposted, "take-unposted"),
        (Variant::PostAlways, "post-always"),
        (Variant::GiveRelaxed, "give-relaxed"),
        (Variant::TakeRelaxed, "take-relaxed"),
        (Variant::Untagged, "untagged"),
        (Variant::LeaveRelaxed, "leave-relaxed"),
        (Variant::AdoptRelaxed, "adopt-relaxed"),
        (Variant::NeverLeft, "never-left"),
        (Variant::ClaimAnyhow, "claim-anyhow"),
        (Variant::ClaimFree, "claim-free"),
        (Variant::RescueForgets, "rescue-forgets"),
    ];
}

/// Whether `variant` is the one chosen.
#[cfg(stillpoint_busted)]
pub(crate) fn is(variant: Variant) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Variant>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("STILLPOINT_BUSTED_POOL").ok()?;
        let found = Variant::ALL.iter().find(|(_, known)| *known == name);
        Some(found.unwrap_or_else(|| panic!("STILLPOINT_BUSTED_POOL: there is no variant `{name}`")).0)
    });
    *chosen == Some(variant)
}

/// No variant is ever chosen in this build.
#[cfg(not(stillpoint_busted))]
#[inline(always)]
pub(crate) fn is(_variant: Variant) -> bool {
    false
}

/// The ordering that the protocol asks for, or relaxed if `variant` is the one chosen.
#[inline(always)]
pub(crate) fn order(variant: Variant, right: Ordering) -> Ordering {
    if is(variant) {
        Ordering::Relaxed
    } else {
        right
    }
}
