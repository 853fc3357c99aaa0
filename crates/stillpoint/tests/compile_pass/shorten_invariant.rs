use stillpoint::{pool, rcu, table, timer};
use stillpoint_structures as structures;

fn rcu_boundarray_t(
    from: rcu::bound::BoundArray<'static, for<'any> fn(&'any ())>,
) -> rcu::bound::BoundArray<'static, for<'any> fn(&'any ())> {
    from
}

fn rcu_arrayguard_t(
    from: rcu::bound::ArrayGuard<'static, for<'any> fn(&'any ())>,
) -> rcu::bound::ArrayGuard<'static, for<'any> fn(&'any ())> {
    from
}

fn rcu_arrayhandle_t(from: rcu::bound::ArrayHandle<for<'any> fn(&'any ())>) -> rcu::bound::ArrayHandle<for<'any> fn(&'any ())> {
    from
}

fn rcu_rcuarray_t(from: rcu::RcuArray<for<'any> fn(&'any ())>) -> rcu::RcuArray<for<'any> fn(&'any ())> {
    from
}

fn rcu_rcucell_t(from: rcu::RcuCell<for<'any> fn(&'any ())>) -> rcu::RcuCell<for<'any> fn(&'any ())> {
    from
}

fn pool_local_p<'same>(from: pool::Local<'same, u8>) -> pool::Local<'same, u8> {
    from
}

fn pool_local_t(
    from: pool::Local<'static, for<'any> fn(&'any ())>,
) -> pool::Local<'static, for<'any> fn(&'any ())> {
    from
}

fn pool_pool_t(from: pool::Pool<for<'any> fn(&'any ())>) -> pool::Pool<for<'any> fn(&'any ())> {
    from
}

fn pool_objects_t(from: pool::Objects<for<'any> fn(&'any ())>) -> pool::Objects<for<'any> fn(&'any ())> {
    from
}

fn pool_rawlocal_p<'same>(from: pool::raw::RawLocal<'same>) -> pool::raw::RawLocal<'same> {
    from
}

fn table_tablereader_k(
    from: table::TableReader<'static, for<'any> fn(&'any ()), u8>,
) -> table::TableReader<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn table_tablereader_v(
    from: table::TableReader<'static, u8, for<'any> fn(&'any ())>,
) -> table::TableReader<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn table_tableguard_k(
    from: table::TableGuard<'static, for<'any> fn(&'any ()), u8>,
) -> table::TableGuard<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn table_tableguard_v(
    from: table::TableGuard<'static, u8, for<'any> fn(&'any ())>,
) -> table::TableGuard<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn table_iter_k(
    from: table::Iter<'static, for<'any> fn(&'any ()), u8>,
) -> table::Iter<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn table_iter_v(
    from: table::Iter<'static, u8, for<'any> fn(&'any ())>,
) -> table::Iter<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn table_removed_k(
    from: table::Removed<'static, for<'any> fn(&'any ()), u8>,
) -> table::Removed<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn table_removed_v(
    from: table::Removed<'static, u8, for<'any> fn(&'any ())>,
) -> table::Removed<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn table_tablehandle_k(
    from: table::TableHandle<for<'any> fn(&'any ()), u8>,
) -> table::TableHandle<for<'any> fn(&'any ()), u8> {
    from
}

fn table_tablehandle_v(
    from: table::TableHandle<u8, for<'any> fn(&'any ())>,
) -> table::TableHandle<u8, for<'any> fn(&'any ())> {
    from
}

fn table_itermut_k(
    from: table::IterMut<'static, for<'any> fn(&'any ()), u8>,
) -> table::IterMut<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn table_itermut_v(
    from: table::IterMut<'static, u8, for<'any> fn(&'any ())>,
) -> table::IterMut<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn table_intoiter_k(
    from: table::IntoIter<for<'any> fn(&'any ()), u8>,
) -> table::IntoIter<for<'any> fn(&'any ()), u8> {
    from
}

fn table_intoiter_v(
    from: table::IntoIter<u8, for<'any> fn(&'any ())>,
) -> table::IntoIter<u8, for<'any> fn(&'any ())> {
    from
}

fn table_set_k(
    from: table::Set<for<'any> fn(&'any ())>,
) -> table::Set<for<'any> fn(&'any ())> {
    from
}

fn table_table_k(from: table::Table<for<'any> fn(&'any ()), u8>) -> table::Table<for<'any> fn(&'any ()), u8> {
    from
}

fn table_table_v(from: table::Table<u8, for<'any> fn(&'any ())>) -> table::Table<u8, for<'any> fn(&'any ())> {
    from
}

fn timer_drain_t(
    from: timer::Drain<'static, for<'any> fn(&'any ())>,
) -> timer::Drain<'static, for<'any> fn(&'any ())> {
    from
}

fn timer_expired_t(
    from: timer::Expired<'static, for<'any> fn(&'any ())>,
) -> timer::Expired<'static, for<'any> fn(&'any ())> {
    from
}

fn timer_event_t(
    from: timer::shared::Event<'static, for<'any> fn(&'any ())>,
) -> timer::shared::Event<'static, for<'any> fn(&'any ())> {
    from
}

fn timer_timerservice_t(
    from: timer::shared::TimerService<for<'any> fn(&'any ())>,
) -> timer::shared::TimerService<for<'any> fn(&'any ())> {
    from
}

fn timer_remote_t(from: timer::shared::Remote<for<'any> fn(&'any ())>) -> timer::shared::Remote<for<'any> fn(&'any ())> {
    from
}

fn timer_mailbox_t(from: timer::shared::Mailbox<for<'any> fn(&'any ())>) -> timer::shared::Mailbox<for<'any> fn(&'any ())> {
    from
}

fn timer_sharedtimer_t(
    from: timer::shared::SharedTimer<for<'any> fn(&'any ())>,
) -> timer::shared::SharedTimer<for<'any> fn(&'any ())> {
    from
}

fn timer_burst_t(
    from: timer::shared::Burst<'static, for<'any> fn(&'any ())>,
) -> timer::shared::Burst<'static, for<'any> fn(&'any ())> {
    from
}

fn structures_stack_t(from: structures::Stack<for<'any> fn(&'any ())>) -> structures::Stack<for<'any> fn(&'any ())> {
    from
}

fn structures_queue_t(from: structures::Queue<for<'any> fn(&'any ())>) -> structures::Queue<for<'any> fn(&'any ())> {
    from
}

fn structures_list_k(from: structures::List<for<'any> fn(&'any ()), u8>) -> structures::List<for<'any> fn(&'any ()), u8> {
    from
}

fn structures_list_v(from: structures::List<u8, for<'any> fn(&'any ())>) -> structures::List<u8, for<'any> fn(&'any ())> {
    from
}

fn structures_entry_k(from: structures::Entry<'static, for<'any> fn(&'any ()), u8>) -> structures::Entry<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn structures_entry_v(from: structures::Entry<'static, u8, for<'any> fn(&'any ())>) -> structures::Entry<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn structures_iter_k(from: structures::Iter<'static, for<'any> fn(&'any ()), u8>) -> structures::Iter<'static, for<'any> fn(&'any ()), u8> {
    from
}

fn structures_iter_v(from: structures::Iter<'static, u8, for<'any> fn(&'any ())>) -> structures::Iter<'static, u8, for<'any> fn(&'any ())> {
    from
}

fn main() {
    let _ = rcu_boundarray_t;
    let _ = rcu_arrayguard_t;
    let _ = rcu_arrayhandle_t;
    let _ = rcu_rcuarray_t;
    let _ = rcu_rcucell_t;
    let _ = pool_local_p;
    let _ = pool_local_t;
    let _ = pool_pool_t;
    let _ = pool_objects_t;
    let _ = pool_rawlocal_p;
    let _ = table_tablereader_k;
    let _ = table_tablereader_v;
    let _ = table_tableguard_k;
    let _ = table_tableguard_v;
    let _ = table_iter_k;
    let _ = table_iter_v;
    let _ = table_removed_k;
    let _ = table_removed_v;
    let _ = table_tablehandle_k;
    let _ = table_tablehandle_v;
    let _ = table_itermut_k;
    let _ = table_itermut_v;
    let _ = table_intoiter_k;
    let _ = table_intoiter_v;
    let _ = table_set_k;
    let _ = table_table_k;
    let _ = table_table_v;
    let _ = timer_drain_t;
    let _ = timer_expired_t;
    let _ = timer_event_t;
    let _ = timer_timerservice_t;
    let _ = timer_remote_t;
    let _ = timer_mailbox_t;
    let _ = timer_sharedtimer_t;
    let _ = timer_burst_t;
    let _ = structures_stack_t;
    let _ = structures_queue_t;
    let _ = structures_list_k;
    let _ = structures_list_v;
    let _ = structures_entry_k;
    let _ = structures_entry_v;
    let _ = structures_iter_k;
    let _ = structures_iter_v;
}
