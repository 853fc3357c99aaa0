use stillpoint::pool::{Obj, Pool};

fn lengthen<'p>(object: Obj<'p, u64>, _pool: &'p Pool<u64>) -> Obj<'static, u64> {
    object
}

fn main() {
    let _ = lengthen;
}
