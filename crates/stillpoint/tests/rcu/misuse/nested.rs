//! Objects that own cells whose objects own cells, and so on: dropping them needs little stack, however deep they are.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::thread;

use stillpoint::rcu::{Domain, RcuArray, RcuCell, Retired};

use crate::census::{Census, Object};
use crate::then::Then;
use crate::{eager, panic_of};

const DEPTHS: [usize; 2] = if cfg!(miri) { [40, 300] } else { [300_000, 1_000_000] };
/// Deeper than the library nests drops.
const DEEP: usize = 200;
/// Not deeper than the library nests drops.
const SHALLOW: usize = 30;

/// One element of a list.
struct Node {
    _object: Object,
    _next: Next,
}

/// What owns the next element.
#[expect(dead_code, reason = "the elements are made to be dropped")]
enum Next {
    Cell(RcuCell<Node>),
    Array(RcuArray<Node>),
    /// Retired by the element's destructor.
    Retired(Option<Retired<Node>>),
}

/// Runs `body` with little stack: enough for dropping some dozens of objects within each other.
fn with_little_stack(body: impl FnOnce() + Send + 'static) {
    let thread =
        thread::Builder::new().stack_size(96 << 10).spawn(body).expect("there is memory for a thread");
    thread.join().expect("the body does not panic");
}

/// A list of `depth` elements. The kinds of their owners are taken in turn from `kinds`.
fn list(domain: &Domain, census: &Census, depth: usize, kinds: &[char]) -> RcuCell<Node> {
    let node = |next| Node { _object: census.object(), _next: next };
    (0..depth).fold(RcuCell::empty_in(domain), |rest, index| {
        let next = match kinds[index % kinds.len()] {
            'c' => Next::Cell(rest),
            'a' => Next::Array(RcuArray::new_in(domain, 1, |_| rest.take().map(unshared))),
            _ => Next::Retired(rest.take()),
        };
        domain.cell(node(next))
    })
}

fn unshared<T: Send + Sync>(retired: Retired<T>) -> Box<T> {
    retired.try_into_box().unwrap_or_else(|_| panic!("there is no reader"))
}

#[test]
fn a_list_of_cells_is_dropped_with_little_stack() {
    for (depth, kinds) in DEPTHS.into_iter().zip([&['c'][..], &['c', 'a']]) {
        with_little_stack(move || {
            let (domain, census) = (Domain::new(), Census::default());
            let list = list(&domain, &census, depth, kinds);
            assert_eq!(census.alive(), depth);
            drop(list);
            assert_eq!((census.freed(), census.alive()), (depth, 0), "before the drop returns");
        });
    }
}

/// Wherever an object is freed, the objects of its cells are freed with it.
#[test]
fn a_retired_list_of_cells_is_freed_with_little_stack() {
    with_little_stack(|| {
        let depth = DEPTHS[0];
        let (domain, census) = (Domain::new(), Census::default());
        let retired = || list(&domain, &census, depth, &['c']).take().expect("the list is not empty");
        let mut reclaimer = eager(&domain);
        reclaimer.retire(retired()).expect("there is room");
        assert_eq!((reclaimer.poll(), census.freed()), (1, depth));
        assert!(retired().try_free().is_ok());
        assert_eq!(census.freed(), 2 * depth);
        retired().free().expect("there is no reader");
        drop(list(&domain, &census, depth, &['c']).into_inner());
        assert_eq!(census.freed(), 4 * depth);
        let last = list(&domain, &census, depth, &['c']);
        let mut array = RcuArray::new_in(&domain, 1, |_| last.take().map(unshared));
        assert!(array.get_mut(0).is_some());
        drop(array);
        drop(retired());
        drop(reclaimer);
        drop(domain);
        assert_eq!((census.freed(), census.alive()), (6 * depth, 0));
    });
}

/// Without a domain, an object that a destructor retires is freed at once, in between the objects of cells.
#[test]
fn a_mixed_list_without_a_domain_is_dropped_with_little_stack() {
    for kinds in [&['r'][..], &['c', 'r'], &['r', 'c', 'a']] {
        with_little_stack(move || {
            let (domain, census) = (Domain::new(), Census::default());
            let list = list(&domain, &census, DEPTHS[0], kinds);
            drop(domain);
            drop(list);
            assert_eq!((census.freed(), census.alive()), (DEPTHS[0], 0), "{kinds:?}");
        });
    }
}

/// The thread's other thread-locals may be gone by then.
#[test]
fn a_list_of_cells_is_dropped_by_the_end_of_a_thread() {
    thread_local! {
        static LIST: RefCell<Option<RcuCell<Node>>> = const { RefCell::new(None) };
    }
    let census = Census::default();
    let counted = census.clone();
    with_little_stack(move || {
        LIST.with_borrow_mut(|_| ());
        let domain = Domain::new();
        drop(list(&domain, &counted, DEEP, &['c', 'r']));
        LIST.set(Some(list(&domain, &counted, DEPTHS[0], &['c'])));
    });
    assert_eq!((census.freed(), census.alive()), (DEEP + DEPTHS[0], 0));
}

/// Records its number when it is dropped.
struct Told {
    number: usize,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.order.lock().expect("it is not poisoned").push(self.number);
    }
}

/// An object with a cell, and a field that is dropped after the cell.
struct Parent {
    child: RcuCell<Parent>,
    _after: Told,
}

/// The order in which the fields after the cells of a list of `depth` are dropped; 0 is the innermost.
fn order_of(depth: usize) -> Vec<usize> {
    let domain = Domain::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let list = (0..depth).fold(RcuCell::empty_in(&domain), |child, number| {
        domain.cell(Parent { child, _after: Told { number, order: Arc::clone(&order) } })
    });
    let reader = domain.reader();
    assert!(depth < 2 || list.protect(&reader).expect("it is not empty").child.protect(&reader).is_some());
    drop(list);
    let order = order.lock().expect("it is not poisoned");
    order.clone()
}

/// As with all fields, a cell's object is dropped before the fields that follow the cell.
#[test]
fn a_child_is_dropped_before_the_fields_that_follow_its_cell() {
    assert_eq!(order_of(SHALLOW), (0..SHALLOW).collect::<Vec<_>>());
}

/// Far down, an object's fields are dropped before the objects of its cells. All of these are dropped before the fields
/// of objects further up.
#[test]
fn objects_far_down_are_dropped_one_after_the_other() {
    let order = order_of(DEEP);
    assert_eq!(order.len(), DEEP);
    let deepest = order.iter().position(|&number| number == 0).expect("each is dropped");
    assert!(order[..=deepest].is_sorted_by(|one, next| one > next), "{order:?}");
    assert!(order[deepest + 1..].is_sorted_by(|one, next| one < next), "{order:?}");
    assert!(order.len() - deepest >= SHALLOW, "{order:?}");
}

/// The first panic goes on after the rest of the list is freed, and the thread is as before.
#[test]
fn panics_far_down_lose_nothing() {
    with_little_stack(|| {
        struct Bomb {
            _child: Option<Box<RcuCell<Bomb>>>,
            _then: Then,
        }
        let (domain, census) = (Domain::new(), Census::default());
        let bombs = |depth: usize, panics: fn(usize) -> bool| {
            (0..depth).fold(None, |child, number| {
                let object = census.object();
                let then = Then::new(move || {
                    drop(object);
                    assert!(!panics(number), "{number}");
                });
                Some(Box::new(domain.cell(Bomb { _child: child, _then: then })))
            })
        };
        // Far down each third one panics; further up none does, which would end the process.
        let list = bombs(DEEP, |number| number < DEEP - 2 * SHALLOW && number % 3 == 0);
        let first = panic_of(|| drop(list)).downcast::<String>().expect("it is formatted");
        assert_eq!((&first[..], census.freed(), census.alive()), ("138", DEEP, 0));
        drop(bombs(DEPTHS[0], |_| false));
        assert_eq!((census.freed(), census.alive()), (DEEP + DEPTHS[0], 0));
        assert_eq!(order_of(SHALLOW), (0..SHALLOW).collect::<Vec<_>>());
    });
}
