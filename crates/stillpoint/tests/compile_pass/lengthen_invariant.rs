use stillpoint::{pool, rcu, table, timer};
use stillpoint_structures as structures;

fn rcu_boundarray_t(
    from: rcu::bound::BoundArray<'static, fn(&'static ())>,
) -> rcu::bound::BoundArray<'static, fn(&'static ())> {
    from
}

fn rcu_arrayguard_t(
    from: rcu::bound::ArrayGuard<'static, fn(&'static ())>,
) -> rcu::bound::ArrayGuard<'static, fn(&'static ())> {
    from
}

fn rcu_arrayhandle_t(from: rcu::bound::ArrayHandle<fn(&'static ())>) -> rcu::bound::ArrayHandle<fn(&'static ())> {
    from
}

fn rcu_rcuarray_t(from: rcu::RcuArray<fn(&'static ())>) -> rcu::RcuArray<fn(&'static ())> {
    from
}

fn rcu_rcucell_t(from: rcu::RcuCell<fn(&'static ())>) -> rcu::RcuCell<fn(&'static ())> {
    from
}

fn pool_obj_t(from: pool::Obj<'static, fn(&'static ())>) -> pool::Obj<'static, fn(&'static ())> {
    from
}

fn pool_block_t(from: pool::Block<'static, fn(&'static ())>) -> pool::Block<'static, fn(&'static ())> {
    from
}

fn pool_blockobjects_t(
    from: pool::BlockObjects<'static, fn(&'static ())>,
) -> pool::BlockObjects<'static, fn(&'static ())> {
    from
}

fn pool_bulk_t(
    from: pool::Bulk<'static, fn(&'static ())>,
) -> pool::Bulk<'static, fn(&'static ())> {
    from
}

fn pool_local_p<'same>(from: pool::Local<'same, u8>) -> pool::Local<'same, u8> {
    from
}

fn pool_local_t(from: pool::Local<'static, fn(&'static ())>) -> pool::Local<'static, fn(&'static ())> {
    from
}

fn pool_pool_t(from: pool::Pool<fn(&'static ())>) -> pool::Pool<fn(&'static ())> {
    from
}

fn pool_objects_t(from: pool::Objects<fn(&'static ())>) -> pool::Objects<fn(&'static ())> {
    from
}

fn pool_rawlocal_p<'same>(from: pool::raw::RawLocal<'same>) -> pool::raw::RawLocal<'same> {
    from
}

fn table_tablereader_k(
    from: table::TableReader<'static, fn(&'static ()), u8>,
) -> table::TableReader<'static, fn(&'static ()), u8> {
    from
}

fn table_tablereader_v(
    from: table::TableReader<'static, u8, fn(&'static ())>,
) -> table::TableReader<'static, u8, fn(&'static ())> {
    from
}

fn table_tableguard_k(
    from: table::TableGuard<'static, fn(&'static ()), u8>,
) -> table::TableGuard<'static, fn(&'static ()), u8> {
    from
}

fn table_tableguard_v(
    from: table::TableGuard<'static, u8, fn(&'static ())>,
) -> table::TableGuard<'static, u8, fn(&'static ())> {
    from
}

fn table_iter_k(
    from: table::Iter<'static, fn(&'static ()), u8>,
) -> table::Iter<'static, fn(&'static ()), u8> {
    from
}

fn table_iter_v(
    from: table::Iter<'static, u8, fn(&'static ())>,
) -> table::Iter<'static, u8, fn(&'static ())> {
    from
}

fn table_removed_k(
    from: table::Removed<'static, fn(&'static ()), u8>,
) -> table::Removed<'static, fn(&'static ()), u8> {
    from
}

fn table_removed_v(
    from: table::Removed<'static, u8, fn(&'static ())>,
) -> table::Removed<'static, u8, fn(&'static ())> {
    from
}

fn table_tablehandle_k(
    from: table::TableHandle<fn(&'static ()), u8>,
) -> table::TableHandle<fn(&'static ()), u8> {
    from
}

fn table_tablehandle_v(
    from: table::TableHandle<u8, fn(&'static ())>,
) -> table::TableHandle<u8, fn(&'static ())> {
    from
}

fn table_itermut_k(
    from: table::IterMut<'static, fn(&'static ()), u8>,
) -> table::IterMut<'static, fn(&'static ()), u8> {
    from
}

fn table_itermut_v(
    from: table::IterMut<'static, u8, fn(&'static ())>,
) -> table::IterMut<'static, u8, fn(&'static ())> {
    from
}

fn table_intoiter_k(
    from: table::IntoIter<fn(&'static ()), u8>,
) -> table::IntoIter<fn(&'static ()), u8> {
    from
}

fn table_intoiter_v(
    from: table::IntoIter<u8, fn(&'static ())>,
) -> table::IntoIter<u8, fn(&'static ())> {
    from
}

fn table_set_k(
    from: table::Set<fn(&'static ())>,
) -> table::Set<fn(&'static ())> {
    from
}

fn table_table_k(from: table::Table<fn(&'static ()), u8>) -> table::Table<fn(&'static ()), u8> {
    from
}

fn table_table_v(from: table::Table<u8, fn(&'static ())>) -> table::Table<u8, fn(&'static ())> {
    from
}

fn timer_drain_t(from: timer::Drain<'static, fn(&'static ())>) -> timer::Drain<'static, fn(&'static ())> {
    from
}

fn timer_expired_t(
    from: timer::Expired<'static, fn(&'static ())>,
) -> timer::Expired<'static, fn(&'static ())> {
    from
}

fn timer_event_t(from: timer::shared::Event<'static, fn(&'static ())>) -> timer::shared::Event<'static, fn(&'static ())> {
    from
}

fn timer_timerservice_t(from: timer::shared::TimerService<fn(&'static ())>) -> timer::shared::TimerService<fn(&'static ())> {
    from
}

fn timer_remote_t(from: timer::shared::Remote<fn(&'static ())>) -> timer::shared::Remote<fn(&'static ())> {
    from
}

fn timer_mailbox_t(from: timer::shared::Mailbox<fn(&'static ())>) -> timer::shared::Mailbox<fn(&'static ())> {
    from
}

fn timer_sharedtimer_t(from: timer::shared::SharedTimer<fn(&'static ())>) -> timer::shared::SharedTimer<fn(&'static ())> {
    from
}

fn timer_burst_t(from: timer::shared::Burst<'static, fn(&'static ())>) -> timer::shared::Burst<'static, fn(&'static ())> {
    from
}

fn structures_stack_t(from: structures::Stack<fn(&'static ())>) -> structures::Stack<fn(&'static ())> {
    from
}

fn structures_queue_t(from: structures::Queue<fn(&'static ())>) -> structures::Queue<fn(&'static ())> {
    from
}

fn structures_list_k(from: structures::List<fn(&'static ()), u8>) -> structures::List<fn(&'static ()), u8> {
    from
}

fn structures_list_v(from: structures::List<u8, fn(&'static ())>) -> structures::List<u8, fn(&'static ())> {
    from
}

fn structures_entry_k(from: structures::Entry<'static, fn(&'static ()), u8>) -> structures::Entry<'static, fn(&'static ()), u8> {
    from
}

fn structures_entry_v(from: structures::Entry<'static, u8, fn(&'static ())>) -> structures::Entry<'static, u8, fn(&'static ())> {
    from
}

fn structures_iter_k(from: structures::Iter<'static, fn(&'static ()), u8>) -> structures::Iter<'static, fn(&'static ()), u8> {
    from
}

fn structures_iter_v(from: structures::Iter<'static, u8, fn(&'static ())>) -> structures::Iter<'static, u8, fn(&'static ())> {
    from
}

fn main() {
    let _ = rcu_boundarray_t;
    let _ = rcu_arrayguard_t;
    let _ = rcu_arrayhandle_t;
    let _ = rcu_rcuarray_t;
    let _ = rcu_rcucell_t;
    let _ = pool_obj_t;
    let _ = pool_block_t;
    let _ = pool_blockobjects_t;
    let _ = pool_bulk_t;
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
