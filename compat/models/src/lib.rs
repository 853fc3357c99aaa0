//! Models of a program that depends on stillpoint: of its own code, and on top of stillpoint.

#![cfg(test)]

/// A model of the program's own code: `RUSTFLAGS="--cfg loom" cargo test`. stillpoint is the same as in any other build: loom
/// switches threads only at the program's own accesses.
#[cfg(loom)]
mod of_its_own_code {
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::Arc;
    use stillpoint::rcu::RcuCell;
    use stillpoint::table::Table;

    #[test]
    fn what_is_set_before_a_flag_is_there_after_it() {
        loom::model(|| {
            let cell = Arc::new(RcuCell::new(1));
            let table = Arc::new(Table::new());
            let is_ready = Arc::new(AtomicBool::new(false));
            let writer = loom::thread::spawn({
                let (cell, table, is_ready) = (cell.clone(), table.clone(), is_ready.clone());
                move || {
                    cell.set(2);
                    table.insert("key", 3).expect("there is memory");
                    // Release: pairs with the Acquire of the load.
                    is_ready.store(true, Ordering::Release);
                }
            });
            if is_ready.load(Ordering::Acquire) {
                let guard = stillpoint::rcu::pin();
                assert_eq!((cell.load(&guard), table.within(&guard).get("key")), (Some(&2), Some(&3)));
            }
            writer.join().expect("it does not panic");
        });
    }
}

/// A model on top of stillpoint, whose atomics loom then watches as well:
/// `RUSTFLAGS="--cfg stillpoint_loom" cargo test --features loom`.
#[cfg(stillpoint_loom)]
mod on_top {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use loom::cell::UnsafeCell;
    use stillpoint::fence::Mode;
    use stillpoint::rcu::Domain;

    /// An object whose accesses loom checks.
    struct Watched(UnsafeCell<u32>);

    impl Watched {
        fn get(&self) -> u32 {
            // SAFETY: the reader protects it; otherwise loom reports it.
            self.0.with(|value| unsafe { *value })
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            // SAFETY: no reader is left; otherwise loom reports it.
            self.0.with_mut(|value| unsafe { *value = 0 });
        }
    }

    // SAFETY: shared only through a cell of a domain, which is what the model checks.
    unsafe impl Send for Watched {}
    // SAFETY: as above.
    unsafe impl Sync for Watched {}

    #[test]
    fn a_reader_keeps_its_object() {
        static OLD: AtomicUsize = AtomicUsize::new(0);
        static NEW: AtomicUsize = AtomicUsize::new(0);
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let domain = Domain::builder().fence(Mode::Symmetric).build().expect("there is memory");
            let cell = loom::sync::Arc::new(domain.cell(Watched(UnsafeCell::new(1))));
            let reader = loom::thread::spawn({
                let (domain, cell) = (domain.clone(), cell.clone());
                move || {
                    let reader = domain.reader();
                    let guard = reader.pin();
                    match cell.load(&guard).expect("never empty").get() {
                        1 => OLD.fetch_add(1, Ordering::Relaxed),
                        2 => NEW.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other} is no value of the cell"),
                    };
                }
            });
            let mut reclaimer = domain.reclaimer();
            let old = cell.replace(Watched(UnsafeCell::new(2))).expect("never empty");
            reclaimer.retire(old).expect("there is memory");
            reclaimer.poll();
            reader.join().expect("it does not panic");
        });
        // loom has switched threads within stillpoint: before and after the replacement.
        assert!(OLD.load(Ordering::Relaxed) > 0 && NEW.load(Ordering::Relaxed) > 0);
    }
}
