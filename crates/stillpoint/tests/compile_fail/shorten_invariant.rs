use stillpoint::{pool, rcu, table, timer};
use stillpoint_structures as structures;

fn rcu_boundarray_t(
    from: rcu::bound::BoundArray<'static, for<'any> fn(&'any ())>,
) -> rcu::bound::BoundArray<'static, fn(&'static ())> {
    from
}

fn rcu_arrayguard_t(
    from: rcu::bound::ArrayGuard<'static, for<'any> fn(&'any ())>,
) -> rcu::bound::ArrayGuard<'static, fn(&'static ())> {
    from
}

fn rcu_arrayhandle_t(from: rcu::bound::ArrayHandle<for<'any> fn(&'any ())>) -> rcu::bound::ArrayHandle<fn(&'static ())> {
    from
}

fn rcu_rcuarray_t(from: rcu::RcuArray<for<'any> fn(&'any ())>) -> rcu::RcuArray<fn(&'static ())> {
    from
}

fn rcu_rcucell_t(from: rcu::RcuCell<for<'any> fn(&'any ())>) -> rcu::RcuCell<fn(&'static ())> {
    from
}

fn pool_local_p<'long: 'short, 'short>(from: pool::Local<'long, u8>) -> pool::Local<'short, u8> {
    from
}

fn pool_local_t(from: pool::Local<'static, for<'any> fn(&'any ())>) -> pool::Local<'static, fn(&'static ())> {
    from
}

fn pool_pool_t(from: pool::Pool<for<'any> fn(&'any ())>) -> pool::Pool<fn(&'static ())> {
    from
}

fn pool_objects_t(from: pool::Objects<for<'any> fn(&'any ())>) -> pool::Objects<fn(&'static ())> {
    from
}

fn pool_rawlocal_p<'long: 'short, 'short>(from: pool::raw::RawLocal<'long>) -> pool::raw::RawLocal<'short> {
    from
}

fn table_tablereader_k(
    from: table::TableReader<'static, for<'any> fn(&'any ()), u8>,
) -> table::TableReader<'static, fn(&'static ()), u8> {
    from
}

fn table_tablereader_v(
    from: table::TableReader<'static, u8, for<'any> fn(&'any ())>,
) -> table::TableReader<'static, u8, fn(&'static ())> {
    from
}

fn table_tableguard_k(
    from: table::TableGuard<'static, for<'any> fn(&'any ()), u8>,
) -> table::TableGuard<'static, fn(&'static ()), u8> {
    from
}

fn table_tableguard_v(
    from: table::TableGuard<'static, u8, for<'any> fn(&'any ())>,
) -> table::TableGuard<'static, u8, fn(&'static ())> {
    from
}

fn table_iter_k(
    from: table::Iter<'static, for<'any> fn(&'any ()), u8>,
) -> table::Iter<'static, fn(&'static ()), u8> {
    from
}

fn table_iter_v(
    from: table::Iter<'static, u8, for<'any> fn(&'any ())>,
) -> table::Iter<'static, u8, fn(&'static ())> {
    from
}

fn table_removed_k(
    from: table::Removed<'static, for<'any> fn(&'any ()), u8>,
) -> table::Removed<'static, fn(&'static ()), u8> {
    from
}

fn table_removed_v(
    from: table::Removed<'static, u8, for<'any> fn(&'any ())>,
) -> table::Removed<'static, u8, fn(&'static ())> {
    from
}

fn table_tablehandle_k(
    from: table::TableHandle<for<'any> fn(&'any ()), u8>,
) -> table::TableHandle<fn(&'static ()), u8> {
    from
}

fn table_tablehandle_v(
    from: table::TableHandle<u8, for<'any> fn(&'any ())>,
) -> table::TableHandle<u8, fn(&'static ())> {
    from
}

fn table_itermut_k(
    from: table::IterMut<'static, for<'any> fn(&'any ()), u8>,
) -> table::IterMut<'static, fn(&'static ()), u8> {
    from
}

fn table_itermut_v(
    from: table::IterMut<'static, u8, for<'any> fn(&'any ())>,
) -> table::IterMut<'static, u8, fn(&'static ())> {
    from
}

fn table_intoiter_k(
    from: table::IntoIter<for<'any> fn(&'any ()), u8>,
) -> table::IntoIter<fn(&'static ()), u8> {
    from
}

fn table_intoiter_v(
    from: table::IntoIter<u8, for<'any> fn(&'any ())>,
) -> table::IntoIter<u8, fn(&'static ())> {
    from
}

fn table_set_k(
    from: table::Set<for<'any> fn(&'any ())>,
) -> table::Set<fn(&'static ())> {
    from
}

fn table_table_k(from: table::Table<for<'any> fn(&'any ()), u8>) -> table::Table<fn(&'static ()), u8> {
    from
}

fn table_table_v(from: table::Table<u8, for<'any> fn(&'any ())>) -> table::Table<u8, fn(&'static ())> {
    from
}

fn timer_drain_t(
    from: timer::Drain<'static, for<'any> fn(&'any ())>,
) -> timer::Drain<'static, fn(&'static ())> {
    from
}

fn timer_expired_t(
    from: timer::Expired<'static, for<'any> fn(&'any ())>,
) -> timer::Expired<'static, fn(&'static ())> {
    from
}

fn timer_event_t(
    from: timer::shared::Event<'static, for<'any> fn(&'any ())>,
) -> timer::shared::Event<'static, fn(&'static ())> {
    from
}

fn timer_timerservice_t(
    from: timer::shared::TimerService<for<'any> fn(&'any ())>,
) -> timer::shared::TimerService<fn(&'static ())> {
    from
}

fn timer_remote_t(from: timer::shared::Remote<for<'any> fn(&'any ())>) -> timer::shared::Remote<fn(&'static ())> {
    from
}

fn timer_mailbox_t(from: timer::shared::Mailbox<for<'any> fn(&'any ())>) -> timer::shared::Mailbox<fn(&'static ())> {
    from
}

fn timer_sharedtimer_t(
    from: timer::shared::SharedTimer<for<'any> fn(&'any ())>,
) -> timer::shared::SharedTimer<fn(&'static ())> {
    from
}

fn timer_burst_t(
    from: timer::shared::Burst<'static, for<'any> fn(&'any ())>,
) -> timer::shared::Burst<'static, fn(&'static ())> {
    from
}

fn rcu_atomic_t(from: rcu::link::Atomic<for<'any> fn(&'any ())>) -> rcu::link::Atomic<fn(&'static ())> {
    from
}

fn structures_stack_t(from: structures::Stack<for<'any> fn(&'any ())>) -> structures::Stack<fn(&'static ())> {
    from
}

fn structures_queue_t(from: structures::Queue<for<'any> fn(&'any ())>) -> structures::Queue<fn(&'static ())> {
    from
}

fn structures_list_k(from: structures::List<for<'any> fn(&'any ()), u8>) -> structures::List<fn(&'static ()), u8> {
    from
}

fn structures_list_v(from: structures::List<u8, for<'any> fn(&'any ())>) -> structures::List<u8, fn(&'static ())> {
    from
}

fn structures_entry_k(from: structures::Entry<'static, for<'any> fn(&'any ()), u8>) -> structures::Entry<'static, fn(&'static ()), u8> {
    from
}

fn structures_entry_v(from: structures::Entry<'static, u8, for<'any> fn(&'any ())>) -> structures::Entry<'static, u8, fn(&'static ())> {
    from
}

fn structures_iter_k(from: structures::Iter<'static, for<'any> fn(&'any ()), u8>) -> structures::Iter<'static, fn(&'static ()), u8> {
    from
}

fn structures_iter_v(from: structures::Iter<'static, u8, for<'any> fn(&'any ())>) -> structures::Iter<'static, u8, fn(&'static ())> {
    from
}

fn main() {}
