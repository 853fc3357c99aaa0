use stillpoint::pool::{Obj, Pool};

#[cfg(not(test))] type Stored = fn(&'static String) -> usize;
#[cfg(test)] type Stored = for<'a> fn(&'a String) -> usize;

fn measure(name: &String) -> usize {
    name.capacity()
}

/// If it compiled, the pool would hand out a function that may keep its argument for ever as one that does not.
fn main() {
    let pool = Pool::<for<'a> fn(&'a String) -> usize>::new(1, || String::len).unwrap();
    let local = pool.local().unwrap();
    let mut object: Obj<'_, Stored> = local.alloc().unwrap();
    *object = measure;
    drop(object);
    assert!(local.alloc().unwrap()(&String::from("short")) >= 5);
}
