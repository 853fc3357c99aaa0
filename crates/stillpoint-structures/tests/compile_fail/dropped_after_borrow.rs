use stillpoint::{pool, rcu, table, timer};
use stillpoint_structures as structures;

/// What is declared last is dropped first: `first` while `later` borrows it, and in the twin `later`.
#[cfg(not(test))] macro_rules! both { ($later:ident, $first:ident) => { let ($later, $first); } }
#[cfg(test)] macro_rules! both { ($later:ident, $first:ident) => { let ($first, $later); } }

fn rcu_guard_r(make: impl for<'any> Fn(&'any ()) -> rcu::Guard<'any>) { both!(_later, first); first = (); _later = make(&first); }
fn rcu_protected_a(make: impl for<'any> Fn(&'any ()) -> rcu::Protected<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn rcu_arrayguard_g(make: impl for<'any> Fn(&'any ()) -> rcu::bound::ArrayGuard<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_obj_p(make: impl for<'any> Fn(&'any ()) -> pool::Obj<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_block_p(make: impl for<'any> Fn(&'any ()) -> pool::Block<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_blockobjects_p(make: impl for<'any> Fn(&'any ()) -> pool::BlockObjects<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_bulk_p(make: impl for<'any> Fn(&'any ()) -> pool::Bulk<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_local_p(make: impl for<'any> Fn(&'any ()) -> pool::Local<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn pool_rawlocal_p(make: impl for<'any> Fn(&'any ()) -> pool::raw::RawLocal<'any>) { both!(_later, first); first = (); _later = make(&first); }
fn table_tablereader_a(make: impl for<'any> Fn(&'any ()) -> table::TableReader<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_tableguard_g(make: impl for<'any> Fn(&'any ()) -> table::TableGuard<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_ref_a(make: impl for<'any> Fn(&'any ()) -> table::Ref<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_removed_t(make: impl for<'any> Fn(&'any ()) -> table::Removed<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_stillheld_t(make: impl for<'any> Fn(&'any ()) -> table::error::StillHeld<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_tablehandle_k(make: impl for<'any> Fn(&'any ()) -> table::TableHandle<&'any (), u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_tablehandle_v(make: impl for<'any> Fn(&'any ()) -> table::TableHandle<u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_tablehandle_s(make: impl for<'any> Fn(&'any ()) -> table::TableHandle<u8, u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_intoiter_k(make: impl for<'any> Fn(&'any ()) -> table::IntoIter<&'any (), u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_intoiter_v(make: impl for<'any> Fn(&'any ()) -> table::IntoIter<u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_intoiter_s(make: impl for<'any> Fn(&'any ()) -> table::IntoIter<u8, u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_set_k(make: impl for<'any> Fn(&'any ()) -> table::Set<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_set_s(make: impl for<'any> Fn(&'any ()) -> table::Set<u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_table_k(make: impl for<'any> Fn(&'any ()) -> table::Table<&'any (), u8>) { both!(_later, first); first = (); _later = make(&first); }
fn table_table_v(make: impl for<'any> Fn(&'any ()) -> table::Table<u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn table_table_s(make: impl for<'any> Fn(&'any ()) -> table::Table<u8, u8, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_drain_a(make: impl for<'any> Fn(&'any ()) -> timer::Drain<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_timerservice_t(make: impl for<'any> Fn(&'any ()) -> timer::shared::TimerService<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_remote_t(make: impl for<'any> Fn(&'any ()) -> timer::shared::Remote<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_mailbox_t(make: impl for<'any> Fn(&'any ()) -> timer::shared::Mailbox<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_sharedmailbox_t(make: impl for<'any> Fn(&'any ()) -> timer::shared::SharedMailbox<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_sharedtimer_t(make: impl for<'any> Fn(&'any ()) -> timer::shared::SharedTimer<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn timer_burst_a(make: impl for<'any> Fn(&'any ()) -> timer::shared::Burst<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn rcu_owned_t(make: impl for<'any> Fn(&'any ()) -> rcu::link::Owned<&'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn rcu_protectedlink_r(make: impl for<'any> Fn(&'any ()) -> rcu::link::ProtectedLink<'any, u8>) { both!(_later, first); first = (); _later = make(&first); }
fn rcu_protectedlink_t(make: impl for<'any> Fn(&'any ()) -> rcu::link::ProtectedLink<'static, &'any ()>) { both!(_later, first); first = (); _later = make(&first); }
fn structures_entry_a(make: impl for<'any> Fn(&'any ()) -> structures::Entry<'any, u8, u8>) { both!(_later, first); first = (); _later = make(&first); }

fn main() {}
