use stillpoint::pool;

type Given = for<'any> fn(&'any ());
#[cfg(not(test))] type Wanted = fn(&'static ());
#[cfg(test)] type Wanted = Given;

fn pool_obj_t(from: pool::Obj<'static, Given>) -> pool::Obj<'static, Wanted> { from }
fn pool_block_t(from: pool::Block<'static, Given>) -> pool::Block<'static, Wanted> { from }
fn pool_blockobjects_t(from: pool::BlockObjects<'static, Given>) -> pool::BlockObjects<'static, Wanted> { from }
fn pool_bulk_t(from: pool::Bulk<'static, Given>) -> pool::Bulk<'static, Wanted> { from }

fn main() {}
