use stillpoint::rcu::{QsbrReader, RcuCell};

fn load<'r>(cell: &'static RcuCell<i32>, reader: &'r QsbrReader) -> Option<&'r i32> {
    cell.load(reader)
}

/// A cell of static lifetime does not make its objects live for ever.
#[cfg(not(test))]
fn lengthen(cell: &'static RcuCell<i32>, reader: &QsbrReader) -> Option<&'static i32> {
    cell.load(reader)
}

fn main() {
    let _ = load;
}
