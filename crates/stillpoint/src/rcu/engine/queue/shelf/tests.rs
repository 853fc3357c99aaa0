//! When the lists of threads are polled, by whom, and how far.

use std::ptr;
use std::time::Instant;

use super::super::retire_list::GATHERED;
use super::*;
use crate::fence::Mode;
use crate::rcu::limits::{RetireErrorKind, WhenFull};
use crate::rcu::{Domain, RcuCell, Retired};

const MANY: usize = if cfg!(miri) { 300 } else { 10_000 };

/// A thread's list in a separate domain.
struct Scene {
    domain: Domain,
    own: OwnShelf,
}

impl Scene {
    fn new() -> Self {
        Self::of(Domain::new())
    }

    /// In a domain with room for this many objects.
    fn limited(objects: usize) -> Self {
        Self::of(Domain::builder().max_pending(objects).build().expect("it needs no right"))
    }

    fn of(domain: Domain) -> Self {
        let own = OwnShelf::new(domain.core());
        Self { domain, own }
    }

    fn retired(&self) -> Retired<usize> {
        self.domain.cell(1).take().expect("it is not empty")
    }

    fn garbage(&self, cell: &RcuCell<usize>) -> Garbage {
        let _ = self;
        cell.take().expect("it is not empty").into_parts().into_garbage()
    }

    fn write(&mut self) {
        let garbage = self.garbage(&self.domain.cell(0));
        self.own.put(self.domain.core(), garbage);
    }

    fn pending(&self) -> usize {
        self.domain.stats().pending as usize
    }

    fn len(&self) -> usize {
        let turns = self.domain.core().shelves.iter().filter_map(Shelf::begin);
        turns.map(|turn| turn.content.list.as_ref().map_or(0, RetireList::len)).sum()
    }
}

/// Lists in a domain's shelves keep the domain alive. The default domain may have such lists, since it never ends.
impl Drop for Scene {
    fn drop(&mut self) {
        for shelf in self.domain.core().shelves.iter() {
            drop(shelf.begin().and_then(|mut turn| turn.content.list.take()));
        }
    }
}

/// This holds however many objects of the list are pinned for ever, and however many orphans other threads have left.
#[test]
fn a_list_shrinks_beside_pinned_objects_and_takes_in_no_more_than_it_frees() {
    let mut scene = Scene::new();
    let reader = scene.domain.reader();
    let cells: Vec<_> = (0..2 * SHARE).map(|value| scene.domain.cell(value)).collect();
    let protected: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let guard = reader.pin();
    for cell in &cells {
        let garbage = scene.garbage(cell);
        scene.own.put(scene.domain.core(), garbage);
    }
    (0..MANY).for_each(|_| scene.write());
    drop(guard);
    for _ in 0..MANY {
        drop(scene.domain.cell(0).take());
    }
    // Objects that come while full batches gather, or wait for the fence, add to that.
    let longest = scene.len() + GATHERED * Pace::DEFAULT.batch;
    let mut writes = 0;
    while scene.pending() > cells.len() + 2 * GATHERED * Pace::DEFAULT.batch {
        scene.write();
        writes += 1;
        assert!(scene.len() <= longest, "the list has {} objects, and may have {longest}", scene.len());
        assert!(writes <= 4 * MANY, "{} are left", scene.pending());
    }
    drop(protected);
}

/// The other writes append to the list, and do nothing else. Each change of the coarse time adds a poll.
#[test]
fn while_many_objects_wait_one_write_of_many_polls() {
    let mut scene = Scene::new();
    let reader = scene.domain.reader();
    let _guard = reader.pin();
    (0..2 * EAGER).for_each(|_| scene.write());
    let begun = Instant::now();
    let has_polled = |_: &usize| stillpoint_sys::work::steps_of(|| scene.write()).0 > 0;
    let polls = (0..10 * EAGER).filter(has_polled).count();
    // The coarse time changes once in a millisecond, at most.
    let changes = begun.elapsed().as_millis() as usize + 1;
    assert!((10..=10 + changes).contains(&polls), "{polls} polls in {changes} changes of the time");
}

/// A thread that changes something once a day does not keep for a month what a reader has left long ago.
#[test]
fn while_many_objects_wait_rare_writes_poll_soon() {
    let mut scene = Scene::new();
    let reader = scene.domain.reader();
    let guard = reader.pin();
    (0..EAGER + TIMED + 1).for_each(|_| scene.write());
    drop(guard);
    let before = scene.pending();
    for _ in 0..2 * TIMED {
        let last = coarse();
        while coarse() == last {
            std::hint::spin_loop();
        }
        scene.write();
    }
    assert!(scene.pending() < before, "{} of {before} wait", scene.pending());
}

/// Otherwise each write would look at all readers.
#[test]
fn beside_readers_that_are_away_a_token_serves_a_batch_of_writes() {
    let mut scene = Scene::new();
    if scene.domain.fence_mode() == Mode::Symmetric {
        return; // tokens have no pace there
    }
    let _away = scene.domain.reader();
    scene.write();
    let core = Arc::clone(scene.domain.core());
    let (protocol, begun) = (&core.protocol, Instant::now());
    let (before, batches) = (protocol.start(), 8);
    (0..batches * Pace::DEFAULT.batch).for_each(|_| scene.write());
    let tokens = (protocol.start() - before) as usize - 1;
    let paced = (begun.elapsed().as_micros() / 20) as usize + 1;
    assert!(tokens <= batches + paced, "{tokens} tokens, {paced} of them by the pace");
}

/// The end takes no longer if more waits. The next thread goes on with the list.
#[test]
fn the_end_of_a_thread_takes_as_long_as_ever() {
    let mut scene = Scene::new();
    let reader = scene.domain.reader();
    let guard = reader.pin();
    (0..MANY).for_each(|_| scene.write());
    let (steps, ()) = stillpoint_sys::work::steps_of(|| scene.own.end(scene.domain.core()));
    assert_eq!((steps, scene.len(), scene.pending()), (0, MANY, MANY));
    drop(guard);
    scene.own = OwnShelf::new(scene.domain.core());
    let writes = MANY + SHARE;
    (0..writes).for_each(|_| scene.write());
    assert!(scene.pending() < MANY, "{} are left", scene.pending());
    assert_eq!(scene.len(), scene.pending(), "there is one list");
}

/// The child of a `fork` gives up lists that are locked. If the thread that forks has the turn at a list, the end of that turn
/// takes this back.
#[test]
fn a_list_that_is_locked_is_given_up_until_its_turn_ends() {
    let mut scene = Scene::new();
    let domain = scene.domain.clone();
    let (reader, core) = (domain.reader(), domain.core());
    let _guard = reader.pin();
    scene.write();
    let shelf = scene.own.shelf(core);
    let turn = shelf.begin().expect("no thread has the turn");
    core.reset_shelves_after_fork();
    assert!(shelf.is_lost() && !core.has_shelved());
    let mut list = RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
    scene.write();
    assert!(!ptr::eq(shelf, scene.own.shelf(core)), "another one takes its place");
    assert!(core.has_shelved() && core.take_shelved(&mut list, || false));
    assert_eq!(list.len(), 1, "no thread waits for what is lost");
    drop(turn);
    assert!(!shelf.is_lost() && core.take_shelved(&mut list, || false));
    assert_eq!(list.len(), 2);
    core.reset_shelves_after_fork();
    assert!(!shelf.is_lost(), "it is not locked");
}

/// A background reclaimer that looks while the turn lasts finds what was adopted, and does not sleep.
#[test]
fn what_is_adopted_is_seen_at_once() {
    let scene = Scene::new();
    let core = scene.domain.core();
    drop(scene.domain.cell(0).take());
    let shelf = core.shelves.iter().next().expect("the scene has one");
    let mut turn = shelf.begin().expect("no thread has the turn");
    turn.adopt(core, 1);
    assert!(!core.has_orphans() && core.has_shelved());
}

/// A visiting thread frees what is there, and adopts nothing.
#[test]
fn who_passes_by_adopts_nothing() {
    let mut scene = Scene::new();
    let reader = scene.domain.reader();
    let guard = reader.pin();
    scene.write();
    for _ in 0..SHARE {
        drop(scene.domain.cell(0).take());
    }
    std::thread::sleep(2 * SILENT);
    let core = scene.domain.core();
    let round = Round::default();
    (0..core.shelves.iter().count()).for_each(|_| core.visit_silent(&round, SHARE, || core.age()));
    assert!(!core.visit_all(&mut None));
    assert_eq!((scene.len(), scene.pending()), (1, SHARE + 1));
    drop(guard);
    assert!(core.visit_all(&mut None));
    assert_eq!((scene.len(), scene.pending()), (0, SHARE));
    let lists = core.shelves.iter().filter_map(Shelf::begin);
    assert_eq!(lists.filter(|turn| turn.content.list.is_some()).count(), 0, "its memory is freed, too");
}

/// What a list has seen stays with it: threads that each write less than a poll takes in leave no more than one thread that
/// writes all of it.
#[test]
fn threads_that_each_write_little_leave_little() {
    const EACH: usize = 20;
    let mut scene = Scene::new();
    let _reader = scene.domain.reader();
    let most = EAGER + (GATHERED + 2) * Pace::DEFAULT.batch;
    for _ in 0..2 * MANY / EACH {
        (0..EACH).for_each(|_| scene.write());
        scene.own.end(scene.domain.core());
        scene.own = OwnShelf::new(scene.domain.core());
        assert!(scene.pending() <= most, "{} wait, and at most {most} may", scene.pending());
    }
}

/// Each thread, and each reclaimer, makes one visit and ends. Together they come to each list.
#[test]
fn visits_of_callers_that_come_once_go_round() {
    for by_reclaimers in [false, true] {
        let mut scene = Scene::new();
        let domain = scene.domain.clone();
        let reader = domain.reader();
        let guard = reader.pin();
        let others: Vec<_> = (0..10)
            .map(|_| {
                scene.write();
                std::mem::replace(&mut scene.own, OwnShelf::new(domain.core()))
            })
            .collect();
        drop(guard);
        drop(reader);
        std::thread::sleep(2 * SILENT);
        for _ in 0..3 * others.len() {
            if by_reclaimers {
                domain.reclaimer().poll();
            } else {
                scene.write();
                scene.own.end(domain.core());
                scene.own = OwnShelf::new(domain.core());
            }
        }
        assert_eq!(scene.pending(), 0, "by reclaimers: {by_reclaimers}");
    }
}

/// However many threads have written, their places are given back when nothing waits there, and a visit comes to what is left
/// by looks that each go over little.
#[test]
fn places_of_ended_threads_are_not_visited() {
    const CROWD: usize = if cfg!(miri) { 100 } else { 10_000 };
    let mut scene = Scene::new();
    let domain = scene.domain.clone();
    let core = domain.core();
    let reader = domain.reader();
    let mut crowd: Vec<_> = (0..CROWD).map(|_| OwnShelf::new(core)).collect();
    std::mem::swap(&mut scene.own, &mut crowd[CROWD - 1]);
    let guard = reader.pin();
    scene.write();
    std::mem::swap(&mut scene.own, &mut crowd[CROWD - 1]);
    crowd.iter_mut().for_each(|own| own.end(core));
    assert_eq!(core.shelves.iter().count(), 2, "that of the scene, and the vacant one");
    drop(guard);
    drop(reader);
    let round = Round::default();
    let visit_silent =
        || stillpoint_sys::work::steps_of(|| core.visit_silent(&round, SHARE, || core.age())).0;
    let steps: Vec<_> = std::iter::from_fn(|| (scene.pending() > 0).then(visit_silent)).collect();
    assert!(steps.len() <= 100 && steps.iter().all(|&steps| steps <= 20), "{steps:?}");
    assert_eq!((scene.pending(), core.shelves.iter().count()), (0, 1));
    // A thread that begins gets what one that has ended has left.
    let guard = domain.reader();
    let guard = guard.pin();
    scene.write();
    scene.own.end(core);
    scene.own = OwnShelf::new(core);
    scene.write();
    assert_eq!((scene.len(), core.shelves.iter().count()), (2, 1));
    drop(guard);
}

/// Whoever finds the domain full frees what is ready in the lists of threads: in its own one, in that of a thread that has written just
/// now, and in that of a thread that has ended.
#[test]
fn who_finds_no_room_frees_what_is_ready_in_the_lists_of_threads() {
    for (has_ended, is_handle) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut scene = Scene::limited(1);
        let domain = scene.domain.clone();
        let background = domain.reclaimer_builder().when_full(WhenFull::Reclaim).build_background();
        let reader = domain.reader();
        let guard = reader.pin();
        scene.write();
        if has_ended {
            scene.own.end(domain.core());
        }
        let retire = |retired| match is_handle {
            true => background.retire_handle().retire(retired),
            false => domain.reclaimer().retire(retired),
        };
        let error = retire(scene.retired()).expect_err("the guard is in the way");
        assert_eq!((error.kind(), scene.pending()), (RetireErrorKind::DomainFull, 1));
        drop(guard);
        retire(error.into_inner()).expect("the object in the list can be freed");
        let stats = domain.stats();
        assert_eq!((stats.freed, stats.reclaims_by_retirers, scene.len()), (1, 1, 0));
    }
}

/// Within a destructor, nothing else is freed: destructors do not nest.
#[test]
fn a_destructor_that_finds_no_room_visits_no_list() {
    let mut scene = Scene::limited(1);
    let domain = scene.domain.clone();
    let reader = domain.reader();
    let guard = reader.pin();
    scene.write();
    drop(guard);
    let freeing = crate::frames::Foreign::begin();
    let error = domain.reclaimer().retire(scene.retired()).expect_err("nothing is freed");
    drop(freeing);
    domain.reclaimer().retire(error.into_inner()).expect("the object in the list can be freed");
}

/// Nor does it adopt what others have left, or free it: not in a poll, and not for room.
#[test]
fn a_destructor_adopts_nothing() {
    let domain = Domain::builder().max_pending(1).build().expect("there is memory");
    drop(domain.cell(1).take()); // left to the domain
    let mut reclaimer = domain.reclaimer();
    let freeing = crate::frames::Foreign::begin();
    for _ in 0..10 {
        assert_eq!(reclaimer.poll(), 0);
    }
    let retired = domain.cell(2).take().expect("it is there");
    let error = domain.reclaimer().retire(retired).expect_err("nothing is freed");
    drop(freeing);
    assert_eq!(domain.stats().freed, 0);
    domain.reclaimer().retire(error.into_inner()).expect("what was left can be freed");
}

/// While the thread waits, only its own looks find that its own load holds what is in its list.
#[test]
fn a_wait_for_what_a_load_of_the_thread_holds_in_its_own_list_fails() {
    let mut scene = Scene::limited(1);
    let domain = scene.domain.clone();
    let (reader, cell) = (domain.reader(), domain.cell(0));
    let held = cell.protect(&reader);
    let garbage = scene.garbage(&cell);
    scene.own.put(domain.core(), garbage);
    let mut patient = domain.reclaimer_builder().when_full(WhenFull::Wait(Duration::MAX)).build();
    let error = patient.retire(scene.retired()).expect_err("its own load has the room");
    assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
    drop(held);
    patient.retire(error.into_inner()).expect("the load is released");
}

/// A retirement without room visits a share of the lists. The next one goes on with the next lists, and so comes to each.
#[test]
fn a_retirement_without_room_visits_a_share_of_the_lists() {
    const LISTS: usize = if cfg!(miri) { 2 } else { 4 } * SHARE;
    let mut scene = Scene::limited(LISTS);
    let domain = scene.domain.clone();
    let mut others: Vec<_> = (0..LISTS - 1).map(|_| OwnShelf::new(domain.core())).collect();
    // The list with the highest number is the only one in which the object is older than the guard.
    std::mem::swap(&mut scene.own, &mut others[LISTS - 2]);
    let (reader, older) = (domain.reader(), domain.reader());
    let before = older.pin();
    scene.write();
    let guard = reader.pin();
    drop(before);
    for own in &mut others {
        let garbage = scene.garbage(&domain.cell(0));
        own.put(domain.core(), garbage);
    }
    assert_eq!(scene.pending(), LISTS);
    let mut reclaimer = domain.reclaimer();
    let mut old = scene.retired();
    for share in 1..LISTS / SHARE {
        old = reclaimer.retire(old).expect_err("these lists wait for the guard").into_inner();
        assert_eq!(scene.pending(), LISTS, "share {share}");
    }
    reclaimer.retire(old).expect("the last list has something to free");
    drop(guard);
}

/// Where there are few lists, none is visited twice.
#[test]
fn a_retirement_without_room_looks_at_each_list_once() {
    let mut scene = Scene::new();
    let domain = scene.domain.clone();
    let (reader, cell) = (domain.reader(), domain.cell(0));
    let held = cell.protect(&reader);
    let garbage = scene.garbage(&cell);
    scene.own.put(domain.core(), garbage);
    let round = Round::default();
    for _ in 0..3 {
        let (steps, freed) = stillpoint_sys::work::steps_of(|| domain.core().visit_for_room(&round));
        assert!(steps <= 100 && freed == 0, "{steps} steps");
    }
    drop(held);
    assert_eq!(domain.core().visit_for_room(&round), 1);
}

/// A visitor of the parent had locked a place when its owner gave it back. The visitor does not exist in the child.
#[test]
fn a_place_that_was_free_and_locked_at_a_fork_is_given_up() {
    let scene = Scene::new();
    let core = scene.domain.core();
    let mut own = OwnShelf::new(core);
    let left = own.shelf(core);
    own.end(core);
    std::mem::forget(left.begin().expect("nobody has it"));
    core.reset_shelves_after_fork();
    let mut next = OwnShelf::new(core);
    next.put(core, scene.garbage(&scene.domain.cell(0)));
    assert!(!next.shelf(core).is_lost());
    assert_eq!(scene.domain.barrier_timeout(Duration::from_secs(20)), Ok(()));
}
