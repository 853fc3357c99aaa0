//! What a retire list takes in, and what its counters report.

use std::ptr::NonNull;
use std::sync::Mutex;

use super::*;
use crate::fence::Mode;
use crate::rcu::engine::wait::own_holds::OwnHolds;
use crate::rcu::engine::wait::park::Next;
use crate::rcu::other::{silent, Other};
use crate::rcu::{Domain, RcuCell, Retired};

fn old(domain: &Domain) -> Retired<u64> {
    domain.cell(1).take().expect("it is not empty")
}

fn eager(domain: &Domain, limits: Limits) -> RetireList {
    RetireList::new(Arc::clone(domain.core()), Pace { interval: Duration::ZERO, ..Pace::DEFAULT }, limits)
}

/// A list in which only ten objects are a reason for a token.
fn in_tens(domain: &Domain) -> RetireList {
    RetireList::new(Arc::clone(domain.core()), Pace { batch: 10, interval: Duration::MAX }, Limits::NONE)
}

fn retire_several(list: &mut RetireList, domain: &Domain, objects: usize) {
    (0..objects).for_each(|_| list.retire(old(domain).into_parts().into_garbage()));
}

/// The age of the domain since which a list waits for a reader in this state.
fn waited_since(domain: &Domain, state: u64) -> Option<Duration> {
    domain.core().counters.iter().filter_map(|counters| counters.in_the_way_since(state)).min()
}

/// Orphans do not exceed the list's own limits.
#[test]
fn a_poll_adopts_as_much_as_there_is_room_for() {
    let domain = Domain::new();
    let reader = domain.reader();
    let _guard = reader.pin();
    for _ in 0..4 * SHARE {
        drop(old(&domain));
    }
    for objects in [1, 10, SHARE, SHARE + 10] {
        let mut list = eager(&domain, Limits { objects, ..Limits::NONE });
        for _ in 0..3 {
            assert_eq!(list.poll(usize::MAX), 0, "a guard is held");
        }
        assert_eq!(list.len(), objects);
    }
    // The bytes of a share are known only after its adoption: no other share follows.
    let mut list = eager(&domain, Limits { bytes: 8 * SHARE - 1, ..Limits::NONE });
    for _ in 0..3 {
        assert_eq!(list.poll(usize::MAX), 0, "a guard is held");
    }
    assert_eq!((list.len(), list.bytes), (SHARE, 8 * SHARE));
}

/// The list's own limit of objects holds also if the domain is full.
#[test]
fn a_retirement_adopts_as_much_as_there_is_room_for() {
    let domain = Domain::builder().max_pending(100).build().expect("a limit is no reason to fail");
    for _ in 0..100 {
        drop(old(&domain));
    }
    let mut list = eager(&domain, Limits { objects: 10, ..Limits::NONE });
    assert_eq!(list.make_room(8), Ok(()));
    assert_eq!((domain.stats().freed, domain.stats().reclaims_by_retirers), (10, 1));
    domain.core().give_room_back(8);
}

/// Only a list that reserves room keeps some. What others have reserved goes back when it is freed, although the list is not empty.
#[test]
fn a_list_keeps_room_if_it_reserves_room() {
    for reserves in [false, true] {
        let domain = Domain::builder().max_pending(10_000).build().expect("a limit is no reason to fail");
        let (reader, cells) = (domain.reader(), [1, 2].map(|value| domain.cell(value)));
        let _held = cells[0].protect(&reader);
        let mut list = eager(&domain, Limits::NONE);
        for cell in &cells {
            let garbage = cell.take().expect("it is not empty").into_parts().into_garbage();
            if reserves {
                list.reserve(garbage.bytes()).expect("there is room");
                list.retire_reserved(garbage);
            } else {
                list.retire(garbage);
            }
        }
        assert_eq!((list.poll(usize::MAX), list.len()), (1, 1));
        let taken = domain.core().account().and_then(|account| account.objects.taken());
        assert_eq!(taken > Some(1), reserves, "{taken:?}");
    }
}

/// A background reclaimer sleeps until the missing objects have come.
#[test]
fn the_open_batch_lacks_what_is_not_there() {
    let domain = Domain::new();
    let pace = Pace { batch: 3, interval: Duration::MAX };
    let mut list = RetireList::new(Arc::clone(domain.core()), pace, Limits::NONE);
    for missing in [3, 2, 1, 0, 0] {
        assert_eq!(list.missing(), missing);
        list.retire(old(&domain).into_parts().into_garbage());
    }
    list.close();
    assert_eq!(list.missing(), 3);
    list.advance(usize::MAX);
}

/// Full batches gather as long as a heavy fence would come too soon after the last one.
#[test]
fn full_batches_gather_for_one_heavy_fence_and_not_without_end() {
    let domain = Domain::new();
    let _silent = silent(&domain);
    let (batch, fences) = (10, || domain.stats().heavy_fences);
    let lot = LONG * batch;
    let mut list = RetireList::new(Arc::clone(domain.core()), Pace { batch, ..Pace::DEFAULT }, Limits::NONE);
    let retire = |list: &mut RetireList| {
        (0..lot).for_each(|_| list.retire(old(&domain).into_parts().into_garbage()));
        list.poll(usize::MAX)
    };
    assert_eq!(retire(&mut list), lot, "the first one has no other before it");
    if domain.fence_mode() == Mode::Symmetric {
        return; // it needs none
    }
    assert_eq!(fences(), 1);
    domain.core().protocol.put_off_heavy();
    let before = fences();
    for gathered in 1..GATHERED / LONG {
        assert_eq!((retire(&mut list), list.len()), (0, gathered * lot));
        assert!(matches!(list.obstacle(), Obstacle::Pace(_)));
    }
    assert_eq!(fences(), before);
    assert_eq!((retire(&mut list), fences()), (GATHERED * batch, before + 1));

    domain.core().protocol.put_off_heavy();
    assert_eq!(retire(&mut list), 0);
    assert_eq!(
        (list.advance(usize::MAX), fences()),
        (lot, before + 2),
        "a retirement without room does not wait for more batches"
    );
    domain.core().protocol.put_off_heavy();
    assert_eq!(retire(&mut list), 0);
    list.close();
    assert_eq!(
        (list.poll(usize::MAX), fences()),
        (lot, before + 3),
        "a closed list does not wait for more batches"
    );
    domain.core().protocol.put_off_heavy();
    assert_eq!(retire(&mut list), 0);
    domain.synchronize().expect("no reader is in the way");
    assert_eq!(list.poll(usize::MAX), lot, "the fence of another wait serves");
}

/// However often polls scan many slots for an object that is held, the next token is due when it was.
#[test]
fn scans_do_not_put_off_the_next_token() {
    let domain = Domain::new();
    let reader = domain.reader();
    let cells: Vec<_> = (0..100).map(|value| domain.cell(value)).collect();
    let protections: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let mut list = RetireList::new(Arc::clone(domain.core()), Pace::DEFAULT, Limits::NONE);
    list.push(cells[0].take().expect("it is not empty").into_parts().into_garbage());
    while list.held.is_empty() {
        list.poll(usize::MAX);
    }
    let until = list.gathers_until().expect("it has started a token, and found many slots in use");
    for _ in 0..3 {
        list.poll(usize::MAX);
        assert_eq!(list.gathers_until(), Some(until));
    }
    drop(protections);
}

/// The fence comes when the list is full. It must not leave objects behind that have come too soon after the last start.
#[test]
fn one_fence_serves_all_of_a_batch_of_which_a_part_has_a_token() {
    let domain = Domain::new();
    let _silent = silent(&domain);
    let mut list = in_tens(&domain);
    let retire = |list: &mut RetireList, objects| retire_several(list, &domain, objects);
    retire(&mut list, 1);
    assert_eq!(list.poll(usize::MAX), 1, "the first one has no other before it");
    if domain.fence_mode() == Mode::Symmetric {
        return; // it needs none
    }
    retire(&mut list, 5);
    while list.open > 0 {
        assert_eq!(list.poll(usize::MAX), 0, "the batch is not full");
    }
    retire(&mut list, 5);
    let mut freed = list.poll(usize::MAX);
    assert_eq!(list.open, 0);
    while freed == 0 {
        freed = list.poll(usize::MAX);
    }
    assert_eq!((freed, list.len(), domain.stats().heavy_fences), (10, 0, 2));
}

/// What has come too soon for a token gets one when the list becomes full, and the next look comes at once.
#[test]
fn a_list_that_becomes_full_does_not_put_off_its_look_at_a_silent_reader() {
    let domain = Domain::new();
    let _silent = silent(&domain);
    let mut list = in_tens(&domain);
    let retire = |list: &mut RetireList, objects| retire_several(list, &domain, objects);
    if domain.fence_mode() == Mode::Symmetric {
        return; // no reader is silent
    }
    retire(&mut list, 1);
    assert_eq!(list.poll(usize::MAX), 1, "the first one has no other before it");
    // Too early for any other reason.
    let early = Duration::ZERO;
    retire(&mut list, 10);
    assert!(!list.is_time(early, false), "no look was put off");
    list.advance(usize::MAX);
    assert_eq!(list.len(), 10);
    list.close();
    assert_eq!(list.advance(usize::MAX), 10);

    retire(&mut list, 5);
    while list.open > 0 {
        assert_eq!(list.poll(usize::MAX), 0, "the batch is not full");
    }
    assert!(list.line.looks.are_put_off());
    retire(&mut list, 1);
    assert!(!list.is_time(early, false));
    list.start(early);
    assert!(list.line.looks.are_put_off() && list.look_later(early).is_some());
    list.hurries = true;
    assert_eq!(list.look_later(early), None);
    retire(&mut list, 4);
    assert!(list.is_time(early, false));
    list.start(early);
    assert!(!list.line.looks.are_put_off());
}

/// Each kind of obstacle, what a thread sleeps for, and whether it knows until when.
#[test]
fn a_list_tells_what_is_in_the_way_of_its_next_object() {
    let domain =
        Domain::builder().stall_hook(Duration::from_secs(3600), |_| ()).build().expect("no reason to fail");
    let (core, reader, cell) = (domain.core(), domain.reader(), domain.cell(1));
    let told = |list: &RetireList| {
        let obstacle = match list.obstacle() {
            Obstacle::Nothing => "nothing",
            Obstacle::Empty => "empty",
            Obstacle::Reader(..) => "reader",
            Obstacle::Hazard => "hazard",
            Obstacle::Pace(_) => "pace",
            Obstacle::Refused(_) | Obstacle::Other => "other",
        };
        let (next, until) = list.obstacle().next(core);
        let next = match next {
            Next::Passage(_) => "passage",
            Next::Release => "release",
            Next::News => "news",
        };
        (obstacle, next, until.is_some(), list.stall_is_due().is_some())
    };
    let mut list = eager(&domain, Limits::NONE);
    assert_eq!(told(&list), ("empty", "news", false, false));
    let object = cell.protect(&reader);
    list.retire(cell.take().expect("it is not empty").into_parts().into_garbage());
    if domain.fence_mode() == Mode::Asymmetric {
        assert_eq!(told(&list), ("pace", "news", true, false), "it has no token");
    }
    list.close();
    let guard = reader.pin();
    assert_eq!(told(&list), ("nothing", "news", false, true), "the region is newer");
    list.poll(usize::MAX);
    assert_eq!(told(&list), ("hazard", "release", false, false));
    list.retire(old(&domain).into_parts().into_garbage());
    list.poll(usize::MAX);
    assert_eq!(told(&list), ("reader", "passage", true, true));
    drop((guard, object));
    drop(reader);
    assert_eq!((list.poll(usize::MAX), told(&list).0), (2, "empty"));
    list.retire(old(&domain).into_parts().into_garbage());
    assert_eq!(
        told(&list),
        ("nothing", "news", false, false),
        "without readers, a poll needs no heavy fence"
    );
}

#[test]
fn a_limit_of_destructors_is_kept() {
    let domain = Domain::new();
    let mut list = eager(&domain, Limits::NONE);
    retire_several(&mut list, &domain, 5);
    list.close();
    for (limit, freed) in [(0, 0), (2, 2), (usize::MAX, 3), (usize::MAX, 0)] {
        assert_eq!(list.free_some(limit), freed);
    }
}

/// A barrier that has looked at the list begins again only if objects were left elsewhere.
#[test]
fn a_list_tells_that_it_has_left_objects_only_if_it_had_any() {
    let domain = Domain::new();
    for is_freed in [false, true] {
        let (mut list, other) = (eager(&domain, Limits::NONE), eager(&domain, Limits::NONE));
        list.set_served(true);
        list.retire(old(&domain).into_parts().into_garbage());
        let counters: *const Counters = list.counters();
        // SAFETY: the list stays until the end of the turn.
        let served = unsafe { &*counters }.served(other.counters()).expect("a thread looks after it");
        if is_freed {
            assert_eq!(list.poll_own(usize::MAX), 1);
        }
        assert!(!served.is_left());
        list.pass_on();
        assert_eq!(served.is_left(), !is_freed);
    }
}

/// A list that has handed everything on waits for nothing, and holds nothing.
#[test]
fn what_is_taken_over_is_told_of_by_the_one_who_has_it() {
    let domain = Domain::new();
    let (reader, cell) = (domain.reader(), domain.cell(1));
    let object = cell.protect(&reader);
    let mut first = eager(&domain, Limits::NONE);
    first.retire(cell.take().expect("it is not empty").into_parts().into_garbage());
    first.poll(usize::MAX);
    let guard = reader.pin();
    first.retire(old(&domain).into_parts().into_garbage());
    first.poll(usize::MAX);
    let state = reader.record().observe();
    assert_eq!((domain.stats().pending, domain.stats().pinned), (2, 1));
    assert!(domain.stats().oldest.is_some() && waited_since(&domain, state).is_some());

    let mut second = eager(&domain, Limits::NONE);
    second.take_over(&mut first);
    assert_eq!((first.len(), first.bytes, second.len(), second.bytes), (0, 0, 2, 12));
    for _ in 0..2 {
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.pinned, stats.oldest), (2, 0, None));
        assert_eq!(waited_since(&domain, state), None, "its grace periods begin anew");
        first.advance(usize::MAX);
    }
    second.poll(usize::MAX);
    assert!(waited_since(&domain, state).is_some());
    drop(guard);
    second.poll(usize::MAX);
    assert_eq!((domain.stats().pinned, second.held()), (1, 1));
    drop(object);
    second.poll(usize::MAX);
    assert_eq!((domain.stats().pending, domain.stats().oldest), (0, None));
}

/// A delay begins when an object is retired, not when it changes its list.
#[test]
fn what_is_taken_over_has_waited_before() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut lists = [eager(&domain, Limits::NONE), eager(&domain, Limits::NONE)];
    retire_several(&mut lists[0], &domain, 1);
    assert_eq!(lists[0].begun(), None, "no poll has read the clock");
    lists[0].poll(usize::MAX);
    let since = lists[0].begun().expect("it was polled");
    let [first, second] = &mut lists;
    second.take_over(first);
    assert_eq!((first.begun(), second.begun()), (None, Some(since)));
    second.replace_each(|garbage| garbage);
    second.poll(usize::MAX);
    assert_eq!(second.begun(), Some(since));
    first.append(second);
    assert_eq!((first.begun(), second.begun()), (Some(since), None));
    drop(guard);
    assert_eq!(first.poll(usize::MAX), 1);
    assert_eq!(first.begun(), None);
}

/// The start of the last batch would hide how long a reader has been in the way.
#[test]
fn a_reader_is_waited_for_since_the_oldest_batch() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let state = reader.record().observe();
    let mut list = eager(&domain, Limits::NONE);
    let mut since = Vec::new();
    for _ in 0..3 {
        list.retire(old(&domain).into_parts().into_garbage());
        list.poll(usize::MAX);
        since.push(waited_since(&domain, state).expect("a grace period is under way"));
    }
    assert!(since.iter().all(|&other| other == since[0]), "{since:?}");
    drop(guard);
    assert_eq!(list.poll(usize::MAX), 3);
    assert_eq!(waited_since(&domain, state), None);
}

/// The statistics report the oldest grace period, whichever list it belongs to.
#[test]
fn the_oldest_grace_period_of_several_retire_lists_is_told() {
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let state = reader.record().observe();
    let mut lists = [(); 3].map(|()| eager(&domain, Limits::NONE));
    let mut told = Vec::new();
    for list in &mut lists {
        list.retire(old(&domain).into_parts().into_garbage());
        list.poll(usize::MAX);
        told.push(domain.core().sum().oldest.expect("a guard is held"));
    }
    assert!(told.iter().all(|&other| other == told[0]), "{told:?}");
    assert!(waited_since(&domain, state + 2).is_some(), "the last one waits for such a reader");
    assert_eq!(waited_since(&domain, state + 3), None, "and no list waits for a newer one");
    drop(guard);
    lists.iter_mut().for_each(|list| assert_eq!(list.poll(usize::MAX), 1));
}

/// Objects that are pinned later do not matter.
#[test]
fn what_a_served_list_held_is_gone_when_nothing_is_pinned_that_was_there() {
    let domain = Domain::new();
    let core = domain.core();
    let (reader, cells) = (domain.reader(), [1, 2, 3].map(|value| domain.cell(value)));
    let mut protected = cells.each_ref().map(|cell| cell.protect(&reader));
    let mut list = eager(&domain, Limits::NONE);
    let other = eager(&domain, Limits::NONE);
    list.set_served(true);
    let retire = |list: &mut RetireList, which: Option<usize>| {
        let retired = match which {
            Some(cell) => cells[cell].take().expect("it is not empty"),
            None => domain.cell(0).take().expect("it is not empty"),
        };
        list.retire(retired.into_parts().into_garbage());
        list.poll(usize::MAX);
    };
    retire(&mut list, Some(0));
    retire(&mut list, None);
    assert_eq!(list.len(), 1);
    let counters: *const Counters = list.counters();
    // SAFETY: the list stays until the end of the test.
    let counters = unsafe { &*counters };
    list.retire(domain.cell(0).take().expect("it is not empty").into_parts().into_garbage());
    let mut served = counters.served(other.counters()).expect("a thread looks after it");
    let mut is_over = || served.is_over(|| core.age());
    list.poll(usize::MAX);
    assert!(!is_over(), "it is pinned");
    retire(&mut list, Some(1));
    assert!(!is_over());
    retire(&mut list, None);
    assert!(!is_over(), "enough objects have been freed, but the first one is still pinned");
    // Both are pinned when the first goes; one of them only since then.
    retire(&mut list, Some(2));
    protected[0] = None;
    protected[1] = None;
    list.poll(usize::MAX);
    assert_eq!((list.held(), is_over()), (1, true));
}

/// Only a poll after the question answers it, and only for what the thread itself holds. An object that is newer than the end of the
/// wait is not waited for.
#[test]
fn a_poll_tells_a_thread_that_waits_what_it_holds_itself() {
    let domain = Domain::new();
    let core = domain.core();
    let (reader, cells) = (domain.reader(), [1, 2, 3].map(|value| domain.cell(value)));
    let own = [cells[0].protect(&reader), cells[2].protect(&reader)];
    let others = cells[1].protect_owned();
    let mut list = eager(&domain, Limits::NONE);
    let other = eager(&domain, Limits::NONE);
    list.set_served(true);
    let retire = |list: &mut RetireList, which: usize| {
        list.retire(cells[which].take().expect("it is not empty").into_parts().into_garbage());
        list.poll(usize::MAX);
    };
    retire(&mut list, 0);
    retire(&mut list, 1);
    let mut holds = OwnHolds::of_caller(core);
    assert!(!core.is_asked() && holds.pinned().is_empty() && core.is_asked());
    list.poll(usize::MAX);
    let pinned = holds.pinned();
    let found =
        |pinned: &[Pinned]| pinned.iter().map(|pinned| (pinned.bytes, pinned.list)).collect::<Vec<_>>();
    let expected = (size_of::<i32>(), list.counters().address());
    assert_eq!(found(&pinned), [expected], "another thread may end the owned one");
    let counters: *const Counters = list.counters();
    // SAFETY: the list stays until the end of the test.
    let mut served = unsafe { &*counters }.served(other.counters()).expect("a thread looks after it");
    assert!(!served.is_over(|| core.age()) && served.wait_for(&pinned[0]));
    let newer = Pinned { started: Duration::MAX, ..pinned[0] };
    assert!(served.wait_for(&newer), "the end is not known yet");
    drop(own);
    drop(others);
    list.poll(usize::MAX);
    let last = cells[2].protect_owned();
    assert!(list.len() == 0 && served.is_over(|| core.age()));
    drop(last);
    drop(holds);
    assert!(!core.is_asked());
}

/// A region is in the way of a whole list if no grace period of the list is older, and if no other thread holds what is pinned.
#[test]
fn counters_tell_whether_a_region_is_in_the_way_of_all_that_waits() {
    let domain = Domain::new();
    let (reader, earlier) = (domain.reader(), domain.reader());
    let protocol = &domain.core().protocol;
    assert_eq!(protocol.region_of_caller(), None);
    let mut list = eager(&domain, Limits::NONE);
    list.retire(old(&domain).into_parts().into_garbage());
    let outer = earlier.pin();
    let first = protocol.region_of_caller().expect("there is a guard");
    assert!(list.counters().is_blocked(first, 0), "it has no token yet");
    list.close();
    assert!(!list.counters().is_blocked(first, 0), "a token was started, and no poll has published it");
    assert_eq!(list.poll(usize::MAX), 0);
    let inner = reader.pin();
    assert_eq!(protocol.region_of_caller(), Some(first), "the oldest one counts");
    let second = reader.record().state();
    assert!(first < second && list.counters().is_blocked(first, 0));
    assert!(!list.counters().is_blocked(second, 0), "the token is older");
    drop(outer);
    assert_eq!(protocol.region_of_caller(), Some(second));
    let (cell, other) = (domain.cell(1), domain.reclaimer());
    let held = cell.protect(&reader);
    list.retire(cell.take().expect("it is not empty").into_parts().into_garbage());
    drop(inner);
    assert_eq!(list.poll(usize::MAX), 1);
    assert!(!list.counters().is_blocked(second, 0) && list.counters().is_blocked(second, 1));
    drop((held, other));
}

/// What is not held up by the region or the protected loads of the thread itself could still be freed.
#[test]
fn a_list_is_full_of_own_objects_only_if_all_others_leave_no_room() {
    let domain = Domain::new();
    let (reader, cell, other) = (domain.reader(), domain.cell(1), domain.cell(2));
    let held = cell.protect(&reader);
    let foreign = other.protect_owned();
    for (limits, own, both) in [
        (Limits { objects: 1, bytes: 1000 }, true, true),
        (Limits { objects: 2, bytes: 1000 }, false, true),
        (Limits { objects: 9, bytes: 10 }, false, true),
        (Limits { objects: 9, bytes: 16 }, false, false),
    ] {
        let mut list = eager(&domain, limits);
        let push = |list: &mut RetireList, cell: &RcuCell<i32>| {
            let address = NonNull::from(&**cell.protect_owned().as_ref().expect("it is not empty")).cast();
            unsafe extern "C-unwind" fn nothing(_: NonNull<()>, _: *const ()) {}
            // SAFETY: nothing is freed, and the context is not used.
            list.retire(unsafe { Garbage::in_context(address, 4, std::ptr::null(), nothing) });
        };
        push(&mut list, &cell);
        push(&mut list, &other);
        assert_eq!(list.poll_own(usize::MAX), 0);
        assert_eq!(list.is_full_of_own(None, 4), own, "{limits:?}");
        let guard = reader.pin();
        let region = domain.core().protocol.region_of_caller();
        assert_eq!(list.is_full_of_own(region, 4), own, "what is held is not held up by the region");
        let mut open = eager(&domain, limits);
        push(&mut open, &other);
        push(&mut open, &other);
        assert_eq!(open.is_full_of_own(region, 4), both, "no token is older than the region");
        assert!(!open.is_full_of_own(None, 4));
        open.close();
        assert_eq!(open.is_full_of_own(region, 4), both, "its token is newer than the region");
        drop(guard);
    }
    drop((held, foreign));
}

/// Grace periods that are under way go on when a list is appended, and tokens remain in order.
#[test]
fn what_is_appended_keeps_its_grace_period() {
    let domain = Domain::new();
    let reader = domain.reader();
    let retire = |list: &mut RetireList| list.retire(old(&domain).into_parts().into_garbage());
    let filled = |starts: &[bool]| {
        let mut list = eager(&domain, Limits::NONE);
        for &is_started in starts {
            retire(&mut list);
            if is_started {
                list.poll(usize::MAX);
            }
        }
        list
    };
    let tokens =
        |list: &RetireList| list.batches.iter().map(|batch| (batch.token, batch.objects)).collect::<Vec<_>>();
    let guard = reader.pin();
    // The tokens of `early` are older than those of `late`.
    let (mut early, mut late) = (filled(&[true, true]), filled(&[true, false]));
    let (before, newest) = (tokens(&early), tokens(&late));
    early.append(&mut late);
    assert_eq!((tokens(&early), early.open, early.len(), late.len()), ([before, newest].concat(), 1, 4, 0));
    // Objects without a token keep those that come after them from keeping theirs.
    let mut other = filled(&[true]);
    early.append(&mut other);
    assert_eq!((early.open, early.len()), (2, 5));
    // An older token gives way to a newer one.
    let (mut older, mut newer) = (filled(&[true, true]), filled(&[true]));
    let [(token, 1)] = tokens(&newer)[..] else { panic!("it has one batch") };
    newer.append(&mut older);
    assert_eq!((tokens(&newer), newer.open, newer.len()), (vec![(token, 3)], 0, 3));
    assert_eq!(newer.advance(usize::MAX), 0);
    drop(guard);
    let grace_periods = domain.stats().grace_periods;
    assert_eq!((newer.advance(usize::MAX), early.advance(usize::MAX)), (3, 3));
    assert_eq!(early.poll(usize::MAX), 2, "these had none yet");
    assert_eq!(domain.stats().grace_periods, grace_periods + 1);
}

/// What protected loads hold begins anew, and is not freed before it is released.
#[test]
fn what_is_appended_stays_held() {
    let domain = Domain::new();
    let (reader, cell) = (domain.reader(), domain.cell(1));
    let object = cell.protect(&reader);
    let (mut one, mut other) = (eager(&domain, Limits::NONE), eager(&domain, Limits::NONE));
    other.retire(cell.take().expect("it is not empty").into_parts().into_garbage());
    other.poll(usize::MAX);
    other.retire(old(&domain).into_parts().into_garbage());
    other.close();
    assert_eq!((other.held(), other.batches.len()), (1, 1));
    one.append(&mut other);
    assert_eq!((one.len(), one.open, one.held(), other.len()), (2, 1, 0, 0));
    assert_eq!((one.poll(usize::MAX), one.held()), (1, 1));
    drop(object);
    assert_eq!((one.poll(usize::MAX), one.len()), (1, 0));
}

/// Each object of the chain is retired by the destructor of the one before, so each has a grace period of its own.
#[test]
fn a_chain_of_destructors_needs_no_fences_while_readers_are_away() {
    const LINKS: u64 = 20_000;
    struct Link {
        _next: Mutex<Option<Retired<Link>>>,
    }
    let domain = Domain::new();
    let own = domain.clone();
    let _away = Other::start(move |turns| {
        let reader = own.reader();
        drop(reader.pin());
        assert!(reader.offline());
        turns.for_each(|()| ());
    });
    let mut next = None;
    for _ in 0..LINKS {
        next = domain.cell(Link { _next: Mutex::new(next) }).take();
    }
    let (mut own, mut polls) = (domain.reclaimer(), 0);
    drop(next); // left to the domain, as each further one will be
    while domain.stats().freed < LINKS {
        own.poll();
        polls += 1;
    }
    assert_eq!(domain.stats().heavy_fences, 0);
    assert!(polls <= 2 * LINKS, "{polls} polls: nobody who is away makes starts wait for each other");
}
