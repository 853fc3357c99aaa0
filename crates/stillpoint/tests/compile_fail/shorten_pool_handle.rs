use stillpoint::pool;

fn pool_obj_t(from: pool::Obj<'static, for<'any> fn(&'any ())>) -> pool::Obj<'static, fn(&'static ())> {
    from
}

fn pool_block_t(from: pool::Block<'static, for<'any> fn(&'any ())>) -> pool::Block<'static, fn(&'static ())> {
    from
}

fn pool_blockobjects_t(
    from: pool::BlockObjects<'static, for<'any> fn(&'any ())>,
) -> pool::BlockObjects<'static, fn(&'static ())> {
    from
}

fn pool_bulk_t(
    from: pool::Bulk<'static, for<'any> fn(&'any ())>,
) -> pool::Bulk<'static, fn(&'static ())> {
    from
}

fn main() {}
