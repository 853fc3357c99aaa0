use stillpoint::rcu::{QsbrReader, RcuCell};

fn load<'r>(cell: &'static RcuCell<i32>, reader: &'r QsbrReader) -> Option<&'r i32> {
    cell.load(reader)
}

fn main() {
    let _ = load;
}
