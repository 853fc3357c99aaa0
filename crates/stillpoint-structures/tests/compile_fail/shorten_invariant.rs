use stillpoint::{pool, rcu, table, timer};
use stillpoint_structures as structures;

type Given = for<'any> fn(&'any ());
#[cfg(not(test))] type Wanted = fn(&'static ());
#[cfg(test)] type Wanted = Given;

fn rcu_boundarray_t(from: rcu::bound::BoundArray<'static, Given>) -> rcu::bound::BoundArray<'static, Wanted> { from }
fn rcu_arrayguard_t(from: rcu::bound::ArrayGuard<'static, Given>) -> rcu::bound::ArrayGuard<'static, Wanted> { from }
fn rcu_rcuarray_t(from: rcu::RcuArray<Given>) -> rcu::RcuArray<Wanted> { from }
fn rcu_rcucell_t(from: rcu::RcuCell<Given>) -> rcu::RcuCell<Wanted> { from }
fn pool_local_p<'long: 'short, #[cfg(not(test))] 'short, #[cfg(test)] 'short: 'long>(from: pool::Local<'long, u8>) -> pool::Local<'short, u8> { from }
fn pool_local_t(from: pool::Local<'static, Given>) -> pool::Local<'static, Wanted> { from }
fn pool_pool_t(from: pool::Pool<Given>) -> pool::Pool<Wanted> { from }
fn pool_objects_t(from: pool::Objects<Given>) -> pool::Objects<Wanted> { from }
fn pool_rawlocal_p<'long: 'short, #[cfg(not(test))] 'short, #[cfg(test)] 'short: 'long>(from: pool::raw::RawLocal<'long>) -> pool::raw::RawLocal<'short> { from }
fn table_tablereader_k(from: table::TableReader<'static, Given, u8>) -> table::TableReader<'static, Wanted, u8> { from }
fn table_tablereader_v(from: table::TableReader<'static, u8, Given>) -> table::TableReader<'static, u8, Wanted> { from }
fn table_tableguard_k(from: table::TableGuard<'static, Given, u8>) -> table::TableGuard<'static, Wanted, u8> { from }
fn table_tableguard_v(from: table::TableGuard<'static, u8, Given>) -> table::TableGuard<'static, u8, Wanted> { from }
fn table_iter_k(from: table::Iter<'static, Given, u8>) -> table::Iter<'static, Wanted, u8> { from }
fn table_iter_v(from: table::Iter<'static, u8, Given>) -> table::Iter<'static, u8, Wanted> { from }
fn table_removed_k(from: table::Removed<'static, Given, u8>) -> table::Removed<'static, Wanted, u8> { from }
fn table_removed_v(from: table::Removed<'static, u8, Given>) -> table::Removed<'static, u8, Wanted> { from }
fn table_stillheld_k(from: table::error::StillHeld<'static, Given, u8>) -> table::error::StillHeld<'static, Wanted, u8> { from }
fn table_stillheld_v(from: table::error::StillHeld<'static, u8, Given>) -> table::error::StillHeld<'static, u8, Wanted> { from }
fn table_tablehandle_k(from: table::TableHandle<Given, u8>) -> table::TableHandle<Wanted, u8> { from }
fn table_tablehandle_v(from: table::TableHandle<u8, Given>) -> table::TableHandle<u8, Wanted> { from }
fn table_itermut_k(from: table::IterMut<'static, Given, u8>) -> table::IterMut<'static, Wanted, u8> { from }
fn table_itermut_v(from: table::IterMut<'static, u8, Given>) -> table::IterMut<'static, u8, Wanted> { from }
fn table_intoiter_k(from: table::IntoIter<Given, u8>) -> table::IntoIter<Wanted, u8> { from }
fn table_intoiter_v(from: table::IntoIter<u8, Given>) -> table::IntoIter<u8, Wanted> { from }
fn table_set_k(from: table::Set<Given>) -> table::Set<Wanted> { from }
fn table_table_k(from: table::Table<Given, u8>) -> table::Table<Wanted, u8> { from }
fn table_table_v(from: table::Table<u8, Given>) -> table::Table<u8, Wanted> { from }
fn timer_drain_t(from: timer::Drain<'static, Given>) -> timer::Drain<'static, Wanted> { from }
fn timer_expired_t(from: timer::Expired<'static, Given>) -> timer::Expired<'static, Wanted> { from }
fn timer_event_t(from: timer::shared::Event<'static, Given>) -> timer::shared::Event<'static, Wanted> { from }
fn timer_timerservice_t(from: timer::shared::TimerService<Given>) -> timer::shared::TimerService<Wanted> { from }
fn timer_remote_t(from: timer::shared::Remote<Given>) -> timer::shared::Remote<Wanted> { from }
fn timer_mailbox_t(from: timer::shared::Mailbox<Given>) -> timer::shared::Mailbox<Wanted> { from }
fn timer_sharedmailbox_t(from: timer::shared::SharedMailbox<Given>) -> timer::shared::SharedMailbox<Wanted> { from }
fn timer_sharedtimer_t(from: timer::shared::SharedTimer<Given>) -> timer::shared::SharedTimer<Wanted> { from }
fn timer_burst_t(from: timer::shared::Burst<'static, Given>) -> timer::shared::Burst<'static, Wanted> { from }
fn timer_delayqueue_t(from: timer::delay_queue::DelayQueue<Given>) -> timer::delay_queue::DelayQueue<Wanted> { from }
fn rcu_atomic_t(from: rcu::link::Atomic<Given>) -> rcu::link::Atomic<Wanted> { from }
fn structures_stack_t(from: structures::Stack<Given>) -> structures::Stack<Wanted> { from }
fn structures_queue_t(from: structures::Queue<Given>) -> structures::Queue<Wanted> { from }
fn structures_list_k(from: structures::List<Given, u8>) -> structures::List<Wanted, u8> { from }
fn structures_list_v(from: structures::List<u8, Given>) -> structures::List<u8, Wanted> { from }
fn structures_entry_k(from: structures::Entry<'static, Given, u8>) -> structures::Entry<'static, Wanted, u8> { from }
fn structures_entry_v(from: structures::Entry<'static, u8, Given>) -> structures::Entry<'static, u8, Wanted> { from }
fn structures_iter_k(from: structures::Iter<'static, Given, u8>) -> structures::Iter<'static, Wanted, u8> { from }
fn structures_iter_v(from: structures::Iter<'static, u8, Given>) -> structures::Iter<'static, u8, Wanted> { from }

fn main() {}
