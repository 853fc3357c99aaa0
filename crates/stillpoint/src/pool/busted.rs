//! Deliberately broken variants of the pool, like those of the reclamation in [`crate::busted`]: controls for the
//! models. In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=pool:NAME` chooses one.

stillpoint_sys::variants! {
    for models, "pool";
    FreeRelaxed = "free-relaxed": "A remote free is relaxed, not acquire and release.",
    CollectRelaxed = "collect-relaxed": "The owner takes the remote word by a relaxed exchange.",
    PostRelaxed = "post-relaxed": "A row is put into the inbox by a relaxed exchange.",
    InboxRelaxed = "inbox-relaxed": "The owner takes its inbox by a relaxed exchange.",
    RestRelaxed = "rest-relaxed": "The rest of an inbox list is put back by a relaxed exchange.",
    RestForgotten = "rest-forgotten": "The rest of an inbox list is not put back.",
    RestOverwrites = "rest-overwrites": "The rest of an inbox list is put back by a store, over a rest that another thread has left.",
    NextAfterTake = "next-after-take": "The next row of the inbox is read after the remote word has been taken.",
    TakeUnposted = "take-unposted": "A remote word is taken although the row did not come from the inbox.",
    PostAlways = "post-always": "Every remote free puts its row into the inbox, not only the first.",
    GiveRelaxed = "give-relaxed": "Buckets go to the store by a relaxed exchange.",
    TakeRelaxed = "take-relaxed": "Buckets come from the store by a relaxed exchange.",
    Untagged = "untagged": "The store does not number its exchanges.",
    EmptiedEarly = "emptied-early": "A magazine is put back as empty before its objects have been taken out.",
    LeaveRelaxed = "leave-relaxed": "A shard is left by a relaxed store.",
    AdoptRelaxed = "adopt-relaxed": "A shard is adopted by a relaxed exchange.",
    NeverLeft = "never-left": "A thread that ends keeps its shard.",
    ClaimAnyhow = "claim-anyhow": "An exhausted allocation claims a bucket although some objects of it have not come back.",
    ClaimFree = "claim-free": "An exhausted allocation claims a bucket although its owner has free objects of it.",
    FreeCommonRelaxed = "free-common-relaxed": "An object of a small pool is freed by a relaxed exchange.",
    TakeCommonRelaxed = "take-common-relaxed": "An object of a small pool is taken by a relaxed exchange.",
    OpenEmpty = "open-empty": "A bucket stays open after its last free object was taken.",
    OpenInList = "open-in-list": "A bucket that is opened stays in its list.",
    RescueForgets = "rescue-forgets": "Bits that a rescuer cannot claim are not put back into the inbox.",
}
