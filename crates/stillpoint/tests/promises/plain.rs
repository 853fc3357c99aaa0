//! Types without parameters: which may be sent, shared, and used after a panic.

use stillpoint::rcu::raw;
use stillpoint::{fence, pool, rcu, table as tables, timer};
use stillpoint_multicast as multicast;

use super::rows::Traits;

type Row = (&'static str, [bool; 4], Traits);

/// Rows of the table: `name = type; Send, Sync, UnwindSafe, RefUnwindSafe`.
macro_rules! rows {
    ($($name:literal = $type:ty; $($has:literal),*;)*) => {
        vec![$(($name, [$($has),*], traits!($type))),*]
    };
}

pub(crate) fn table() -> Vec<Row> {
    [always(), of_features()].into_iter().flatten().collect()
}

/// The rows of types that need a feature which is not on by default.
fn of_features() -> Vec<Row> {
    #[cfg(feature = "metrics")]
    return rows! {
        "metrics.rs::Metrics" = stillpoint::metrics::Metrics; true, true, true, true;
    };
    #[cfg(not(feature = "metrics"))]
    Vec::new()
}

#[rustfmt::skip]
fn always() -> Vec<Row> {
    rows! {
        // type; Send, Sync, UnwindSafe, RefUnwindSafe
        "fence::SetHeavyError" = fence::SetHeavyError;                         true, true, true, true;
        "fence::FenceError" = fence::FenceError;                               true, true, true, true;
        "fence::Mode" = fence::Mode;                                           true, true, true, true;

        "multicast::Group" = multicast::Group;                                 true, true, false, false;
        "multicast::Member" = multicast::Member;                               false, false, false, false;
        "multicast::Strategy" = multicast::Strategy;                           true, true, true, true;
        "multicast::Share" = multicast::Share;                                 true, true, true, true;
        "multicast::Cut" = multicast::Cut;                                     true, true, true, true;
        "multicast::Shape" = multicast::Shape;                                 true, true, true, true;
        "multicast::Acknowledgement" = multicast::Acknowledgement;             true, true, true, true;
        "multicast::Report" = multicast::Report;                               true, true, true, true;
        "multicast::Late" = multicast::Late;                                   true, true, true, true;
        "multicast::SignalMember" = multicast::signals::SignalMember;          false, false, false, false;
        "multicast::SignalMulticast" = multicast::signals::SignalMulticast;    true, true, false, false;
        "multicast::SignalError" = multicast::signals::SignalError;            true, true, true, true;

        "pool::AnyPool" = pool::AnyPool;                                         true, true, false, false;
        "pool::TooManyLocals" = pool::TooManyLocals;                           true, true, true, true;
        "pool::Exhausted" = pool::Exhausted;                                   true, true, true, true;
        "pool::FreeError" = pool::raw::FreeError;                                   true, true, true, true;
        "pool::BuildError" = pool::BuildError;                                 true, true, false, false;
        "pool::RawBlock" = pool::raw::RawBlock;                                     true, true, true, true;
        "pool::RawPool" = pool::raw::RawPool;                                       true, true, false, false;
        "pool::Pages" = pool::memory::Pages;                                           true, true, true, true;
        "pool::Backing" = pool::memory::Backing;                                       true, true, true, true;
        "pool::Iova" = pool::memory::Iova;                                             true, true, true, true;
        "pool::Info" = pool::audit::Info;                                             true, true, true, true;
        "pool::MemoryInfo" = pool::audit::MemoryInfo;                                 true, true, true, true;
        "pool::CacheStats" = pool::audit::CacheStats;                                 true, true, true, true;
        "pool::CallStats" = pool::audit::CallStats;                                   true, true, true, true;
        "pool::PoolStats" = pool::audit::PoolStats;                                   true, true, true, true;
        "pool::Audit" = pool::audit::Audit;                                          true, true, true, true;
        "pool::AuditError" = pool::audit::AuditError;                                 true, true, true, true;

        "rcu::Unprotected" = rcu::link::Unprotected;                           true, true, true, true;
        "rcu::RetireHandle" = rcu::RetireHandle;                                     true, true, false, false;
        "rcu::BackgroundReclaimer" = rcu::BackgroundReclaimer;                 true, false, false, false;
        "rcu::Token" = rcu::wait::Token;                                       true, true, true, true;
        "rcu::DomainBuilder" = rcu::DomainBuilder;                             true, true, false, false;
        "rcu::Domain" = rcu::Domain;                                           true, true, false, false;
        "rcu::ReclaimerBuilder" = rcu::ReclaimerBuilder;                       true, true, false, false;
        "rcu::RetireErrorKind" = rcu::limits::RetireErrorKind;                 true, true, true, true;
        "rcu::SynchronizeError" = rcu::wait::SynchronizeError;                 true, true, true, true;
        "rcu::BuildError" = rcu::BuildError;                                   true, true, true, true;
        "rcu::GracePeriod" = rcu::wait::GracePeriod;                           true, true, false, false;
        "rcu::Boost" = rcu::Boost;                                               true, true, true, true;
        "rcu::WhenFull" = rcu::limits::WhenFull;                               true, true, true, true;
        "rcu::OfflineReader" = rcu::OfflineReader;                             false, false, false, false;
        "rcu::QsbrReader" = rcu::QsbrReader;                                   false, false, false, false;
        "rcu::Reader" = rcu::Reader;                                           false, false, false, false;
        "rcu::Reclaimer" = rcu::Reclaimer;                                     true, false, false, false;
        "rcu::ReaderKind" = rcu::wait::ReaderKind;                             true, true, true, true;
        "rcu::Activity" = rcu::wait::Activity;                                 true, true, true, true;
        "rcu::Delays" = rcu::wait::Delays;                                     true, true, true, true;
        "rcu::Stall" = rcu::wait::Stall;                                       true, true, true, true;
        "rcu::Stats" = rcu::Stats;                                             true, true, true, true;

        "raw::Slot" = raw::Slot;                                               false, false, true, true;
        "raw::Object" = raw::Object;                                           false, false, true, true;
        "raw::Refused" = raw::Refused;                                         false, false, true, true;
        "raw::Spare" = raw::Spare;                                             true, true, false, false;
        "raw::Callback" = raw::Callback;                                       true, true, false, false;
        "raw::ObjectCallback" = raw::ObjectCallback;                           true, true, false, false;
        "raw::CallbackQueue" = raw::CallbackQueue;                             true, true, false, false;
        "raw::Paused" = raw::Paused;                                           true, true, false, false;

        "table::OutOfMemory" = tables::OutOfMemory;                            true, true, true, true;
        "table::TableStats" = tables::TableStats;                              true, true, true, true;

        "timer::Bitset" = timer::Bitset;                                       true, true, true, true;
        "timer::Clock" = timer::Clock;                                         true, true, true, true;
        "timer::Cause" = timer::shared::Cause;                                 true, true, true, true;
        "timer::NodeWheel" = timer::NodeWheel;                                 true, true, true, true;
        "timer::Node" = timer::Node;                                           true, false, true, false;
        "timer::Alarm" = timer::shared::Alarm;                                 true, true, true, true;
        "timer::Sleep" = timer::shared::Sleep;                                 true, true, true, true;
        "timer::Progress" = timer::Progress;                                   true, true, true, true;
        "timer::Limit" = timer::Limit;                                         true, true, true, true;
        "timer::MockTime" = timer::MockTime;                                   true, true, true, true;
        "timer::Key" = timer::Key;                                             true, true, true, true;
        "timer::WheelStats" = timer::WheelStats;                               true, true, true, true;
        "timer::Schedule" = timer::Schedule;                                   true, true, true, true;
    }
}

#[test]
fn traits_are_as_the_table_says() {
    for (name, expected, found) in table() {
        let found = [found.send, found.sync, found.unwind_safe, found.ref_unwind_safe];
        assert_eq!(found, expected, "Send, Sync, UnwindSafe, RefUnwindSafe of {name}");
    }
}
