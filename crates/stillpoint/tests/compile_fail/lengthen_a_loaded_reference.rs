use stillpoint::rcu::{QsbrReader, RcuCell};

/// A cell of static lifetime does not make its objects live for ever.
fn lengthen(cell: &'static RcuCell<i32>, reader: &QsbrReader) -> Option<&'static i32> {
    cell.load(reader)
}

fn main() {
    let _ = lengthen;
}
