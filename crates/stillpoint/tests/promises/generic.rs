//! Types with a lifetime or a type parameter: one row for each parameter.

use stillpoint::{pool, rcu, table, timer};
use stillpoint_multicast as multicast;
use stillpoint_structures as structures;

use super::rows::Row;

/// In each row, the other parameters of the type are plain.
pub(crate) fn table() -> Vec<Row> {
    [always(), of_features()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn always() -> Vec<Row> {
    rows! {
        // type, parameter: bounds = the type with it; variance, Send, Sync, UnwindSafe, RefUnwindSafe, drop check
        "multicast::Multicast", "'g": lifetime = multicast::Multicast<'a>;                   Covariant,     Always,      Always,      Never,         Never,         MayDangle;

        "structures::Stack", "T": send = structures::Stack<T>;                               Invariant,     Always,      Always,      Never,         Never,         Static;
        "structures::Queue", "T": send = structures::Queue<T>;                               Invariant,     Always,      Always,      Never,         Never,         Static;
        "structures::List", "K": send_sync = structures::List<T, u8>;                        Invariant,     Always,      Always,      Never,         Never,         Static;
        "structures::List", "V": send_sync = structures::List<u8, T>;                        Invariant,     Always,      Always,      Never,         Never,         Static;
        "structures::Entry", "'a": lifetime = structures::Entry<'a, u8, u8>;                 Covariant,     Never,       Never,       Never,         Never,         Alive;
        "structures::Entry", "K": send_sync = structures::Entry<'static, T, u8>;             Invariant,     Never,       Never,       Never,         Never,         Static;
        "structures::Entry", "V": send_sync = structures::Entry<'static, u8, T>;             Invariant,     Never,       Never,       Never,         Never,         Static;
        "structures::Iter", "'g": lifetime = structures::Iter<'a, u8, u8>;                   Covariant,     Never,       Never,       Always,        Always,        MayDangle;
        "structures::Iter", "K": send_sync = structures::Iter<'static, T, u8>;               Invariant,     Never,       Never,       Always,        Always,        Static;
        "structures::Iter", "V": send_sync = structures::Iter<'static, u8, T>;               Invariant,     Never,       Never,       Always,        Always,        Static;

        "rcu::Guard", "'r": lifetime = rcu::Guard<'a>;                                       Covariant,     Never,       Never,       Never,         Never,         Alive;
        "rcu::Protected", "'a": lifetime = rcu::Protected<'a, u8>;                           Covariant,     Never,       Never,       Always,        Always,        Alive;
        "rcu::Protected", "T": any = rcu::Protected<'static, T>;                             Covariant,     Never,       Never,       RefUnwindSafe, RefUnwindSafe, AsLifetime;
        "rcu::OwnedProtected", "'a": lifetime = rcu::OwnedProtected<'a, u8>;                 Covariant,     Always,      Always,      Never,         Never,         MayDangle;
        "rcu::OwnedProtected", "T": any = rcu::OwnedProtected<'static, T>;                   Covariant,     Sync,        Sync,        Never,         Never,         AsLifetime;
        "rcu::BoundArray", "'a": lifetime = rcu::bound::BoundArray<'a, u8>;                  Covariant,     Never,       Never,       Never,         Never,         MayDangle;
        "rcu::BoundArray", "T": send_sync = rcu::bound::BoundArray<'static, T>;              Invariant,     Never,       Never,       Never,         Never,         Static;
        "rcu::BoundArray", "R": any = rcu::bound::BoundArray<'static, u8, T>;                Covariant,     Never,       Never,       Never,         Never,         MayDangle;
        "rcu::ArrayGuard", "'g": lifetime = rcu::bound::ArrayGuard<'a, u8>;                  Covariant,     Never,       Never,       Never,         Never,         Alive;
        "rcu::ArrayGuard", "T": send_sync = rcu::bound::ArrayGuard<'static, T>;              Invariant,     Never,       Never,       Never,         Never,         Static;
        "rcu::RcuArray", "T": send_sync = rcu::RcuArray<T>;                                  Invariant,     Always,      Always,      Never,         Never,         Static;
        "rcu::RcuCell", "T": send_sync = rcu::RcuCell<T>;                                    Invariant,     Always,      Always,      Never,         Never,         Static;
        "rcu::Retired", "T": send_sync = rcu::Retired<T>;                                    Covariant,     Always,      Always,      Never,         Never,         Static;
        "rcu::Atomic", "T": any = rcu::link::Atomic<T>;                                      Invariant,     SendAndSync, SendAndSync, Always,        Always,        MayDangle;
        "rcu::Owned", "T": any = rcu::link::Owned<T>;                                        Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, Alive;
        "rcu::Shared", "'g": lifetime = rcu::link::Shared<'a, u8>;                           Covariant,     Never,       Never,       Always,        Always,        MayDangle;
        "rcu::Shared", "T": any = rcu::link::Shared<'static, T>;                             Covariant,     Never,       Never,       RefUnwindSafe, RefUnwindSafe, MayDangle;
        "rcu::ProtectedLink", "'r": lifetime = rcu::link::ProtectedLink<'a, u8>;             Covariant,     Never,       Never,       Never,         Never,         Alive;
        "rcu::ProtectedLink", "T": any = rcu::link::ProtectedLink<'static, T>;               Covariant,     Never,       Never,       Never,         Never,         Alive;
        "rcu::RetireError", "T": send_sync = rcu::RetireError<T>;                            Covariant,     Always,      Always,      Never,         Never,         Static;
        "rcu::RetireError", "C": any = rcu::RetireError<u8, T>;                              Covariant,     Send,        Sync,        Never,         Never,         MayDangle;
        "rcu::CompareExchangeError", "P": any = rcu::link::CompareExchangeError<T>;          Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "rcu::CompareExchangeError", "F": any = rcu::link::CompareExchangeError<u8, T>;      Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "raw::Parts", "'r": lifetime = rcu::raw::Parts<'a>;                                  Covariant,     Always,      Always,      Never,         Never,         MayDangle;

        "pool::Obj", "'p": lifetime = pool::Obj<'a, u8>;                                     Covariant,     Always,      Always,      Never,         Never,         Alive;
        "pool::Obj", "T": send = pool::Obj<'static, T>;                                      Invariant,     Always,      Sync,        Never,         Never,         Static;
        "pool::Block", "'p": lifetime = pool::Block<'a, u8>;                                 Covariant,     Always,      Always,      Never,         Never,         Alive;
        "pool::Block", "T": send = pool::Block<'static, T>;                                  Invariant,     Always,      Sync,        Never,         Never,         Static;
        "pool::Bulk", "'p": lifetime = pool::Bulk<'a, u8>;                                   Covariant,     Always,      Always,      Never,         Never,         Alive;
        "pool::Bulk", "T": send = pool::Bulk<'static, T>;                                    Invariant,     Always,      Sync,        Never,         Never,         Static;
        "pool::BlockObjects", "'p": lifetime = pool::BlockObjects<'a, u8>;                   Covariant,     Always,      Always,      Never,         Never,         Alive;
        "pool::BlockObjects", "T": send = pool::BlockObjects<'static, T>;                    Invariant,     Always,      Sync,        Never,         Never,         Static;
        "pool::Local", "'p": lifetime = pool::Local<'a, u8>;                                 Invariant,     Never,       Never,       Never,         Never,         Alive;
        "pool::Local", "T": send = pool::Local<'static, T>;                                  Invariant,     Never,       Never,       Never,         Never,         Static;
        "pool::Pool", "T": send = pool::Pool<T>;                                             Invariant,     Always,      Always,      Never,         Never,         Static;
        "pool::PoolBuilder", "P": any = pool::PoolBuilder<T>;                                Covariant,     Always,      Always,      Never,         Never,         MayDangle;
        "pool::Objects", "T": any = pool::Objects<T>;                                        Invariant,     Always,      Always,      Never,         Never,         Static;
        "pool::RawLocal", "'p": lifetime = pool::raw::RawLocal<'a>;                               Invariant,     Never,       Never,       Never,         Never,         Alive;

        "table::TableReader", "'a": lifetime = table::TableReader<'a, u8, u8>;               Covariant,     Never,       Never,       Never,         Never,         Alive;
        "table::TableReader", "K": send_sync = table::TableReader<'static, T, u8>;           Invariant,     Never,       Never,       Never,         Never,         Static;
        "table::TableReader", "V": send_sync = table::TableReader<'static, u8, T>;           Invariant,     Never,       Never,       Never,         Never,         Static;
        "table::TableReader", "S": any = table::TableReader<'static, u8, u8, T>;             Covariant,     Never,       Never,       Never,         Never,         AsLifetime;
        "table::TableGuard", "'g": lifetime = table::TableGuard<'a, u8, u8>;                 Covariant,     Never,       Never,       Never,         Never,         Alive;
        "table::TableGuard", "K": send_sync = table::TableGuard<'static, T, u8>;             Invariant,     Never,       Never,       Never,         Never,         Static;
        "table::TableGuard", "V": send_sync = table::TableGuard<'static, u8, T>;             Invariant,     Never,       Never,       Never,         Never,         Static;
        "table::TableGuard", "S": any = table::TableGuard<'static, u8, u8, T>;               Covariant,     Never,       Never,       Never,         Never,         AsLifetime;
        "table::TableGuard", "R": any = table::TableGuard<'static, u8, u8, u8, T>;           Covariant,     Never,       Never,       Never,         Never,         MayDangle;
        "table::TableHandle", "K": send_sync = table::TableHandle<T, u8>;                    Invariant,     Never,       Never,       Never,         Never,         Alive;
        "table::TableHandle", "V": send_sync = table::TableHandle<u8, T>;                    Invariant,     Never,       Never,       Never,         Never,         Alive;
        "table::TableHandle", "S": any = table::TableHandle<u8, u8, T>;                      Covariant,     Never,       Never,       Never,         Never,         Alive;
        "table::Ref", "'a": lifetime = table::Ref<'a, u8, u8>;                               Covariant,     Never,       Never,       Always,        Always,        Alive;
        "table::Ref", "K": any = table::Ref<'static, T, u8>;                                 Covariant,     Never,       Never,       RefUnwindSafe, RefUnwindSafe, AsLifetime;
        "table::Ref", "V": any = table::Ref<'static, u8, T>;                                 Covariant,     Never,       Never,       RefUnwindSafe, RefUnwindSafe, AsLifetime;
        "table::Iter", "'g": lifetime = table::Iter<'a, u8, u8>;                             Covariant,     Always,      Always,      Never,         Never,         MayDangle;
        "table::Iter", "K": any = table::Iter<'static, T, u8>;                               Invariant,     SendAndSync, SendAndSync, Never,         Never,         AsLifetime;
        "table::Iter", "V": any = table::Iter<'static, u8, T>;                               Invariant,     SendAndSync, SendAndSync, Never,         Never,         AsLifetime;
        "table::Iter", "S": any = table::Iter<'static, u8, u8, T>;                           Covariant,     Sync,        Sync,        Never,         Never,         AsLifetime;
        "table::IterMut", "'a": lifetime = table::IterMut<'a, u8, u8>;                       Covariant,     Always,      Always,      Never,         Never,         MayDangle;
        "table::IterMut", "K": any = table::IterMut<'static, T, u8>;                         Invariant,     SendAndSync, SendAndSync, Never,         Never,         AsLifetime;
        "table::IterMut", "V": any = table::IterMut<'static, u8, T>;                         Invariant,     SendAndSync, SendAndSync, Never,         Never,         AsLifetime;
        "table::IterMut", "S": any = table::IterMut<'static, u8, u8, T>;                     Covariant,     Sync,        Sync,        Never,         Never,         AsLifetime;
        "table::IntoIter", "K": send_sync = table::IntoIter<T, u8>;                          Invariant,     Always,      Always,      Never,         Never,         Alive;
        "table::IntoIter", "V": send_sync = table::IntoIter<u8, T>;                          Invariant,     Always,      Always,      Never,         Never,         Alive;
        "table::IntoIter", "S": any = table::IntoIter<u8, u8, T>;                            Covariant,     Send,        Sync,        Never,         Never,         Alive;
        "table::Set", "K": send_sync = table::Set<T>;                                        Invariant,     Always,      Always,      Never,         Never,         Alive;
        "table::Set", "S": any = table::Set<u8, T>;                                          Covariant,     Send,        Sync,        Never,         Never,         Alive;
        "table::Operation", "V": any = table::Operation<T>;                                  Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Operation", "T": any = table::Operation<u8, T>;                              Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Compute", "E": any = table::Compute<T, u8>;                                  Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Compute", "R": any = table::Compute<u8, T>;                                  Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Compute", "T": any = table::Compute<u8, u8, T>;                              Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::TryInsertError", "E": any = table::TryInsertError<T, u8, u8>;                Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::TryInsertError", "K": any = table::TryInsertError<u8, T, u8>;                Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::TryInsertError", "V": any = table::TryInsertError<u8, u8, T, u8>;            Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::TryInsertError", "U": any = table::TryInsertError<u8, u8, u8, T>;            Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Removed", "'t": lifetime = table::Removed<'a, u8, u8>;                       Covariant,     Always,      Always,      Never,         Never,         Alive;
        "table::Removed", "K": send_sync = table::Removed<'static, T, u8>;                   Invariant,     Always,      Always,      Never,         Never,         Static;
        "table::Removed", "V": send_sync = table::Removed<'static, u8, T>;                   Invariant,     Always,      Always,      Never,         Never,         Static;
        "table::Removed", "S": any = table::Removed<'static, u8, u8, T>;                     Covariant,     Sync,        Sync,        Never,         Never,         AsLifetime;
        "table::Table", "K": send_sync = table::Table<T, u8>;                                Invariant,     Always,      Always,      Never,         Never,         Alive;
        "table::Table", "V": send_sync = table::Table<u8, T>;                                Invariant,     Always,      Always,      Never,         Never,         Alive;
        "table::Table", "S": any = table::Table<u8, u8, T>;                                  Covariant,     Send,        Sync,        Never,         Never,         Alive;
        "table::TableBuilder", "K": any = table::TableBuilder<T, u8>;                        Contravariant, Always,      Always,      Never,         Never,         MayDangle;
        "table::TableBuilder", "V": any = table::TableBuilder<u8, T>;                        Contravariant, Always,      Always,      Never,         Never,         MayDangle;
        "table::TableBuilder", "S": any = table::TableBuilder<u8, u8, T>;                    Covariant,     Send,        Sync,        Never,         Never,         MayDangle;
        "table::Full", "K": any = table::Full<T, u8>;                                        Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::Full", "V": any = table::Full<u8, T>;                                        Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::InitError", "K": any = table::error::InitError<T, u8>;                       Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::InitError", "V": any = table::error::InitError<u8, T>;                       Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::UpdateError", "K": any = table::error::UpdateError<T, u8>;                   Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::UpdateError", "V": any = table::error::UpdateError<u8, T>;                   Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "table::StillHeld", "'t": lifetime = table::error::StillHeld<'a, u8, u8>;            Covariant,     Always,      Always,      Never,         Never,         Alive;
        "table::StillHeld", "K": send_sync = table::error::StillHeld<'static, T, u8>;        Invariant,     Always,      Always,      Never,         Never,         Static;
        "table::StillHeld", "V": send_sync = table::error::StillHeld<'static, u8, T>;        Invariant,     Always,      Always,      Never,         Never,         Static;
        "table::StillHeld", "S": any = table::error::StillHeld<'static, u8, u8, T>;          Covariant,     Sync,        Sync,        Never,         Never,         AsLifetime;

        "timer::Wheel", "T": any = timer::Wheel<T>;                                          Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::Drain", "'a": lifetime = timer::Drain<'a, u8>;                               Covariant,     Always,      Always,      Never,         Always,        Alive;
        "timer::Drain", "T": any = timer::Drain<'static, T>;                                 Invariant,     Send,        Sync,        Never,         RefUnwindSafe, AsLifetime;
        "timer::Expired", "'a": lifetime = timer::Expired<'a, u8>;                           Covariant,     Always,      Always,      Never,         Always,        MayDangle;
        "timer::Expired", "T": any = timer::Expired<'static, T>;                             Invariant,     Send,        Sync,        Never,         RefUnwindSafe, AsLifetime;
        "timer::Event", "'a": lifetime = timer::shared::Event<'a, u8>;                       Covariant,     Always,      Always,      Never,         Never,         MayDangle;
        "timer::Event", "T": any = timer::shared::Event<'static, T>;                         Invariant,     Send,        SendAndSync, Never,         Never,         AsLifetime;
        "timer::Full", "T": any = timer::Full<T>;                                            Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::Popped", "T": any = timer::Popped<T>;                                        Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::ArmError", "T": any = timer::shared::ArmError<T>;                            Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::Outcome", "T": any = timer::shared::Outcome<T>;                              Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::TimerService", "T": any = timer::shared::TimerService<T>;                    Invariant,     Send,        Never,       Never,         Never,         Alive;
        "timer::Remote", "T": any = timer::shared::Remote<T>;                                Invariant,     Send,        Send,        Always,        Always,        Alive;
        "timer::Mailbox", "T": any = timer::shared::Mailbox<T>;                              Invariant,     Send,        Send,        Never,         Never,         Alive;
        "timer::SharedMailbox", "T": any = timer::shared::SharedMailbox<T>;                  Invariant,     Send,        Send,        Always,        Always,        Alive;
        "timer::SharedTimer", "T": any = timer::shared::SharedTimer<T>;                      Invariant,     Send,        Send,        Never,         Never,         Alive;
        "timer::Burst", "'a": lifetime = timer::shared::Burst<'a, u8>;                       Covariant,     Always,      Always,      Never,         Never,         Alive;
        "timer::Burst", "T": any = timer::shared::Burst<'static, T>;                         Invariant,     Send,        Send,        Never,         Never,         AsLifetime;
    }
}

/// The rows of types that need a feature which is not on by default.
#[cfg(not(feature = "delay-queue"))]
fn of_features() -> Vec<Row> {
    Vec::new()
}

#[cfg(feature = "delay-queue")]
#[rustfmt::skip]
fn of_features() -> Vec<Row> {
    use timer::delay_queue;

    rows! {
        "timer::DelayQueue", "T": any = delay_queue::DelayQueue<T>;                          Invariant,     Send,        Send,        Always,        Always,        MayDangle;
        "timer::Delayed", "T": any = delay_queue::Delayed<T>;                                Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
        "timer::InsertError", "T": any = delay_queue::InsertError<T>;                        Covariant,     Send,        Sync,        UnwindSafe,    RefUnwindSafe, MayDangle;
    }
}

#[test]
fn traits_are_as_the_table_says() {
    let differences: Vec<_> = table().iter().flat_map(Row::differences).collect();
    assert!(differences.is_empty(), "Send, Sync, UnwindSafe, RefUnwindSafe:\n{}", differences.join("\n"));
}
