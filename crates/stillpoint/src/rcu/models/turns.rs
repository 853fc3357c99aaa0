//! Whoever has something to be looked at need not be the one who looks.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::{explore, EVERY};
use crate::rcu::engine::turn::Turn;

/// After all calls have returned, everything that was done before them has been seen.
#[test]
fn no_call_is_lost() {
    explore(EVERY, || {
        let turn = Arc::new(Turn::<u32>::new());
        let news = Arc::new(AtomicU32::new(0));
        let call = |turn: &Turn<u32>, news: &AtomicU32, own: u32| {
            // Relaxed: the call orders it.
            news.fetch_add(own, Ordering::Relaxed);
            turn.call(|seen| *seen = news.load(Ordering::Relaxed));
        };
        let other = {
            let (turn, news) = (turn.clone(), news.clone());
            thread::spawn(move || call(&turn, &news, 1))
        };
        call(&turn, &news, 2);
        other.join().unwrap();
        let mut last = None;
        // The first look of this call is the value that the two have left.
        turn.call(|seen| _ = last.get_or_insert(*seen));
        assert_eq!(last, Some(3), "a call was lost");
    });
}
