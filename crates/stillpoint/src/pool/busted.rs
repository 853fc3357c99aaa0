//! Deliberately broken variants of the pool, as [`crate::busted`] has them of the reclamation: controls for the models. In
//! builds with `--cfg stillpoint_busted`, one is chosen by the environment variable `STILLPOINT_BUSTED_POOL`.

stillpoint_sys::variants! {
    for models, "STILLPOINT_BUSTED_POOL";
    FreeRelaxed = "free-relaxed": "A remote free is relaxed, not acquire and release.",
    CollectRelaxed = "collect-relaxed": "The owner takes the remote word by a relaxed exchange.",
    PostRelaxed = "post-relaxed": "A row is put into the inbox by a relaxed exchange.",
    InboxRelaxed = "inbox-relaxed": "The owner takes its inbox by a relaxed exchange.",
    RestRelaxed = "rest-relaxed": "What is left of an inbox is put back by a relaxed exchange.",
    RestForgotten = "rest-forgotten": "What is left of an inbox is not put back.",
    RestOverwrites = "rest-overwrites": "What is left of an inbox is put back by a store, over what another thread has left.",
    NextAfterTake = "next-after-take": "The next row of the inbox is read after the remote word was taken.",
    TakeUnposted = "take-unposted": "A remote word is taken without the row's coming from the inbox.",
    PostAlways = "post-always": "Every remote free puts its row into the inbox, not only the first one.",
    GiveRelaxed = "give-relaxed": "Buckets go to the store by a relaxed exchange.",
    TakeRelaxed = "take-relaxed": "Buckets come from the store by a relaxed exchange.",
    Untagged = "untagged": "The store does not number its exchanges.",
    EmptiedEarly = "emptied-early": "A magazine is put back as empty before its objects were taken out.",
    LeaveRelaxed = "leave-relaxed": "A shard is left by a relaxed store.",
    AdoptRelaxed = "adopt-relaxed": "A shard is adopted by a relaxed exchange.",
    NeverLeft = "never-left": "A thread that ends keeps its shard.",
    ClaimAnyhow = "claim-anyhow": "An exhausted allocation claims a bucket although some objects of it have not come back.",
    ClaimFree = "claim-free": "An exhausted allocation claims a bucket of which its owner has free objects.",
    RescueForgets = "rescue-forgets": "What a rescuer cannot claim is not put back into the inbox.",
}
