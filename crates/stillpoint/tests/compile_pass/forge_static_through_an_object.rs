use stillpoint::pool::{Obj, Pool};

fn main() {
    let pool = Pool::<for<'a> fn(&'a String) -> usize>::new(1, || String::len).unwrap();
    let local = pool.local().unwrap();
    let mut object: Obj<'_, for<'a> fn(&'a String) -> usize> = local.alloc().unwrap();
    *object = String::capacity;
    drop(object);
    assert!(local.alloc().unwrap()(&String::from("short")) >= 5);
}
