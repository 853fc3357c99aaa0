//! Other threads that use a service: they reset timers, wait for callbacks, add delays, and wake the owner.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use stillpoint::timer::shared::{Alarm, ArmError, Outcome, SharedTimer, Sleep, TimerService};
use stillpoint::timer::{Key, Limit, Progress, Schedule};

use crate::{with_mailbox, with_timer};

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn fired(service: &mut TimerService<u64>, now: u64) -> Vec<(u64, u64)> {
    let mut fired = Vec::new();
    let progress =
        service.run(now, Limit::NONE, |_, mut event| fired.push((event.deadline(), *event.value())));
    assert!(progress.is_done());
    fired
}

#[test]
fn a_burst_that_is_forgotten_wakes_the_owner_when_the_mailbox_goes() {
    let mut service = TimerService::new(0).sleeping();
    let timer = service.remote().timer();
    let mut mailbox = service.remote().mailbox(4);
    assert!(fired(&mut service, 0).is_empty());
    let mut burst = mailbox.burst();
    burst.add(&timer, 5, 1).unwrap();
    std::mem::forget(burst);
    let bell = Arc::new(Bell::default());
    assert_eq!(service.sleep(Waker::from(Arc::clone(&bell))), Sleep::Forever);
    drop(mailbox);
    assert_eq!((bell.rung(), fired(&mut service, 5)), (1, vec![(5, 1)]));
}

/// Calls of the owner after it has said how long it will sleep.
#[test]
fn the_owner_wakes_its_own_sleep_by_an_earlier_timer() {
    type Call = fn(&mut TimerService<u64>, Key, &SharedTimer<u64>, &SharedTimer<u64>, u64);
    let calls: [(&str, Call); 8] = [
        ("add", |service, _, _, _, at| _ = service.add(at, 1).unwrap()),
        ("add after", |service, _, _, _, at| _ = service.add(Schedule::after(at), 1).unwrap()),
        ("add coarse", |service, _, _, _, at| _ = service.add(Schedule::at(at).coarse(), 1).unwrap()),
        ("reset", |service, key, _, _, at| assert!(service.reset(key, at))),
        ("arm", |service, _, rest, _, at| service.arm(rest, at, 1).unwrap()),
        ("arm coarse", |service, _, rest, _, at| service.arm(rest, Schedule::at(at).coarse(), 1).unwrap()),
        ("reset_shared", |service, _, _, armed, at| service.reset_shared(armed, at).unwrap()),
        ("set_time", |service, _, _, _, at| {
            if at < 1_000 {
                service.set_time(at)
            }
        }),
    ];
    for (name, call) in calls {
        for (at, rings) in [(50, 1), (3_000_000, 0)] {
            let mut service = TimerService::new(0).sleeping();
            let (rest, armed) = (service.remote().timer(), service.remote().timer());
            service.arm(&armed, 2_000_000, 0).unwrap();
            let key = service.add(1_000_000, 0).unwrap();
            let bell = Arc::new(Bell::default());
            let asleep = service.sleep(Waker::from(Arc::clone(&bell)));
            assert!(matches!(asleep, Sleep::Until(1_000..=1_000_000)), "{name}: {asleep:?}");
            call(&mut service, key, &rest, &armed, at);
            assert_eq!(bell.rung(), rings, "{name} {at}");
            // An alarm rings once.
            service.add(20, 2).unwrap();
            assert_eq!(bell.rung(), 1, "{name} {at}");
            // A thread that is awake needs no alarm.
            let _ = fired(&mut service, 20);
            service.add(30, 3).unwrap();
            assert_eq!(bell.rung(), 1, "{name} {at}");
        }
    }
}

#[test]
fn the_owner_wakes_its_own_sleep_by_a_delay() {
    let mut service = TimerService::new(0).sleeping();
    let timer = service.remote().timer();
    let bell = Arc::new(Bell::default());
    assert_eq!(service.sleep(Waker::from(Arc::clone(&bell))), Sleep::Forever);
    service.arm(&timer, Schedule::after(1_000_000), 7).unwrap();
    assert_eq!(bell.rung(), 1);
}

/// The other alarms: a thread that parks, and an eventfd.
#[test]
fn the_owner_wakes_its_own_sleep_whatever_the_alarm() {
    let mut service = TimerService::new(0).sleeping();
    assert_eq!(service.sleep(thread::current()), Sleep::Forever);
    service.add(10, 1).unwrap();
    thread::park(); // for ever, if the addition had not made this return
    assert_eq!(fired(&mut service, 10), [(10, 1)]);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let event = Arc::new(event);
    assert_eq!(service.sleep(Arc::clone(&event)), Sleep::Forever);
    service.add(20, 2).unwrap();
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&*event, &mut count).map(|_| u64::from_ne_bytes(count)), Ok(1));
}

/// A panic would take the key of a timer with it that has been added, or the answer of another thread.
#[test]
fn a_waker_that_panics_takes_no_answer_away() {
    struct Broken(AtomicUsize);

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    }

    let mut service = TimerService::new(0).sleeping();
    let timers = [(); 4].map(|()| service.remote().timer());
    let mut mailbox = service.remote().mailbox(4);
    let broken = Arc::new(Broken(AtomicUsize::new(0)));
    let sleep = |service: &mut TimerService<u64>| {
        let _ = fired(service, 0);
        assert_ne!(service.sleep(Waker::from(Arc::clone(&broken))), Sleep::Not);
    };
    // Each deadline is far enough before the last one that the thread may not sleep until then.
    sleep(&mut service);
    let key = service.add(1 << 56, 1).unwrap();
    sleep(&mut service);
    assert!(service.reset(key, 1 << 49));
    sleep(&mut service);
    service.arm(&timers[0], 1 << 42, 2).unwrap();
    sleep(&mut service);
    service.reset_shared(&timers[0], 1 << 35).unwrap();
    sleep(&mut service);
    mailbox.add(&timers[1], 1 << 28, 3).unwrap();
    sleep(&mut service);
    mailbox.reset(&timers[1], 1 << 21).unwrap();
    sleep(&mut service);
    let mut burst = mailbox.burst();
    burst.add(&timers[2], 1 << 14, 4).unwrap();
    drop(burst);
    sleep(&mut service);
    assert_eq!(timers[2].revoke(), Outcome::Cancelled(()));
    assert_eq!(broken.0.load(Ordering::SeqCst), 8);
    assert_eq!((fired(&mut service, 1), service.cancel(key)), (vec![(1 << 14, 4)], Some(1)));
    assert_eq!(fired(&mut service, 1 << 56), [(1 << 21, 3), (1 << 35, 2)]);
}

/// As in the example `delay_queue`: the task polls, and adds an item afterwards.
#[test]
fn an_item_that_the_task_itself_adds_wakes_it() {
    let mut service = TimerService::new(0).sleeping();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    service.add(2_670, 1).unwrap();
    assert!(service.poll_run(0, Limit::NONE, &mut cx, |_, _| {}).is_pending());
    service.add(150, 2).unwrap();
    assert_eq!(bell.rung(), 1);
    assert!(service.poll_run(149, Limit::NONE, &mut cx, |_, _| {}).is_pending());
    assert!(service.poll_run(150, Limit::NONE, &mut cx, |_, _| {}).is_ready());
}

#[test]
fn a_reset_moves_a_timer_earlier_and_later_and_keeps_its_value() {
    let (mut service, timer, mut mailbox) = with_mailbox(8);
    // The timer is reset before the owner has seen the arming, and afterwards.
    mailbox.add(&timer, 100, 7).unwrap();
    mailbox.reset(&timer, 50).unwrap();
    assert_eq!(fired(&mut service, 49), []);
    mailbox.reset(&timer, 30).unwrap();
    assert_eq!(fired(&mut service, 49), [(30, 7)]);
    mailbox.add(&timer, 60, 8).unwrap();
    assert_eq!(fired(&mut service, 55), []);
    mailbox.reset(&timer, 90).unwrap();
    assert_eq!((fired(&mut service, 89), service.stats().timers), (vec![], 1));
    service.reset_shared(&timer, 95).unwrap();
    assert_eq!((fired(&mut service, 94), fired(&mut service, 95)), (vec![], vec![(95, 8)]));
    for error in [mailbox.reset(&timer, 99), service.reset_shared(&timer, 99)] {
        assert_eq!(error, Err(ArmError::AtRest(())));
    }
    mailbox.add(&timer, 200, 9).unwrap();
    mailbox.reset(&timer, 300).unwrap();
    assert_eq!(timer.cancel(), Outcome::Cancelled(9));
    assert_eq!((fired(&mut service, 1_000), service.stats().timers), (vec![], 0));
}

#[test]
fn a_reset_keeps_the_period_and_is_refused_during_the_callback() {
    let (mut service, timer, mut mailbox) = with_mailbox(8);
    service.arm(&timer, Schedule::at(10).every(10.try_into().unwrap()), 1).unwrap();
    assert_eq!(fired(&mut service, 10), [(10, 1)]);
    mailbox.reset(&timer, 15).unwrap();
    assert_eq!((fired(&mut service, 20), fired(&mut service, 25)), (vec![(15, 1)], vec![(25, 1)]));
    let mut answers = Vec::new();
    let progress = service.run(35, Limit::NONE, |service, event| {
        answers.push(mailbox.reset(&timer, 99));
        answers.push(service.reset_shared(event.timer().unwrap(), 99));
    });
    assert_eq!((progress.expired(), answers), (1, vec![Err(ArmError::Busy(())); 2]));
}

#[test]
fn a_reset_that_cannot_be_sent_changes_nothing() {
    let mut service = TimerService::new(0);
    let other = TimerService::<u64>::new(0);
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(1));
    mailbox.add(&timer, 10, 7).unwrap();
    assert_eq!(mailbox.reset(&timer, 99), Err(ArmError::Full(())));
    assert_eq!(other.remote().mailbox(1).reset(&timer, 99), Err(ArmError::Foreign(())));
    assert_eq!(fired(&mut service, 10), [(10, 7)]);
    drop(service);
    assert_eq!(mailbox.reset(&timer, 99), Err(ArmError::Gone(())));
}

/// Four threads reset a timer, and finally cancel it. It never fires, and no entry is left.
#[test]
fn threads_reset_a_timer_that_never_fires() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 1 << 40, 7).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let done = AtomicUsize::new(0);
    let (timer, done) = (&timer, &done);
    thread::scope(|scope| {
        for number in 0..4 {
            let mut mailbox = service.remote().mailbox(16);
            scope.spawn(move || {
                for round in 0..rounds {
                    while let Err(error) = mailbox.reset(timer, (1 << 40) + number * 100 + round) {
                        assert!(matches!(error, ArmError::Busy(()) | ArmError::Full(())), "{error}");
                        thread::yield_now();
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 4 {
            assert_eq!(fired(&mut service, 1 << 39), []);
            assert!(timer.is_armed());
        }
    });
    assert_eq!((fired(&mut service, 1 << 39), service.stats().timers), (vec![], 1));
    assert_eq!(timer.cancel(), Outcome::Cancelled(7));
    assert_eq!((fired(&mut service, 1 << 39), service.stats().timers), (vec![], 0));
}

#[test]
fn a_delay_counts_from_the_first_time_after_the_message() {
    let (mut service, timer, mut mailbox) = with_mailbox(8);
    mailbox.add(&timer, Schedule::after(50).every(20.try_into().unwrap()), 7).unwrap();
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    assert_eq!(service.next_deadline(), Some(0), "the delay begins at the next time");
    assert_eq!(fired(&mut service, 1_000), []);
    assert_eq!((fired(&mut service, 1_049), fired(&mut service, 1_050)), (vec![], vec![(1_050, 7)]));
    assert_eq!(fired(&mut service, 1_070), [(1_070, 7)]);
    mailbox.reset(&timer, Schedule::after(5)).unwrap();
    assert_eq!((fired(&mut service, 1_071), fired(&mut service, 1_076)), (vec![], vec![(1_076, 7)]));
    // The timer is cancelled between the message and the next time.
    assert!(timer.cancel().is_cancelled());
    mailbox.add(&timer, Schedule::after(5), 8).unwrap();
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    assert!(timer.cancel().is_cancelled());
    assert_eq!((fired(&mut service, 2_000), service.stats().timers), (vec![], 0));
    // This timer fires at `u64::MAX`.
    mailbox.add(&timer, Schedule::after(u64::MAX), 9).unwrap();
    assert_eq!((fired(&mut service, 3_000), fired(&mut service, u64::MAX)), (vec![], vec![(u64::MAX, 9)]));
}

/// To begin a delay counts towards the limit.
#[test]
fn a_delay_beyond_the_limit_begins_later() {
    let mut service = TimerService::new(0);
    let timers = [(); 2].map(|()| service.remote().timer());
    let mut mailbox = service.remote().mailbox(8);
    for (timer, value) in timers.iter().zip(7..) {
        mailbox.add(timer, Schedule::after(50), value).unwrap();
    }
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    for now in [100, 200] {
        assert_eq!(service.manage(now, Limit::expiries(1), |_, _| {}), Progress::More(0));
    }
    assert_eq!(fired(&mut service, 200), [(150, 7)]);
    assert_eq!((fired(&mut service, 249), fired(&mut service, 250)), (vec![], vec![(250, 8)]));
}

#[test]
fn a_delay_that_has_not_begun_survives_a_wrong_time() {
    let (mut service, timer, mut mailbox) = with_mailbox(8);
    assert_eq!(fired(&mut service, u64::MAX - 1), []);
    mailbox.add(&timer, Schedule::after(10), 7).unwrap();
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    service.set_time(50);
    assert_eq!((fired(&mut service, 60), fired(&mut service, 70)), (vec![], vec![(70, 7)]));
}

/// As with `add`: a callback that arms its timer again does not drift.
#[test]
fn a_delay_without_a_mailbox_begins_at_once() {
    let mut service = TimerService::new(100);
    let timer = service.remote().timer();
    service.arm(&timer, Schedule::after(50), 7).unwrap();
    assert_eq!((fired(&mut service, 149), fired(&mut service, 150)), (vec![], vec![(150, 7)]));
}

#[test]
fn a_revoked_delay_has_a_deadline() {
    let mut service = TimerService::new(100);
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(8));
    mailbox.add(&timer, Schedule::after(50), 7).unwrap();
    assert!(timer.revoke().is_cancelled());
    assert_eq!(fired(&mut service, 100), [(150, 7)]);
    // The owner has taken the message in, and the delay has not begun.
    mailbox.add(&timer, Schedule::after(50), 8).unwrap();
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    assert_eq!(service.earliest_deadline(), Some(0), "it is due");
    assert!(timer.revoke().is_cancelled());
    assert_eq!(fired(&mut service, 100), [(150, 8)]);
}

/// The value of a periodic timer is dropped before its last callback counts as ended.
#[test]
fn a_callback_has_not_ended_before_its_value_is_dropped() {
    struct Value(Arc<OnceLock<SharedTimer<Self>>>, Arc<AtomicUsize>);

    impl Drop for Value {
        fn drop(&mut self) {
            let outcome = self.0.get().expect("it is there").cancel();
            assert!(matches!(outcome, Outcome::Running), "{outcome:?}");
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl std::fmt::Debug for Value {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a value")
        }
    }

    let (mut service, own, dropped) = (TimerService::new(0), Arc::new(OnceLock::new()), Arc::default());
    let timer = service.remote().timer();
    assert!(own.set(timer.clone()).is_ok());
    let ten = NonZeroU64::new(10).unwrap();
    for beats in [1, 2] {
        let schedule = Schedule::at(service.now() + 10).every(ten);
        service.arm(&timer, schedule, Value(Arc::clone(&own), Arc::clone(&dropped))).unwrap();
        let mut left = beats;
        for _ in 0..beats {
            let now = service.now() + 10;
            let _ = service.run(now, Limit::NONE, |_, event| {
                left -= 1;
                if left == 0 {
                    assert!(matches!(event.timer().unwrap().cancel(), Outcome::Running));
                }
            });
        }
        assert_eq!((dropped.load(Ordering::Relaxed), service.stats().timers), (beats, 0));
        assert!(matches!(timer.cancel_wait(), Outcome::Fired));
    }
}

#[test]
fn a_service_that_ends_gives_its_alarm_back() {
    let (mut service, bell) = (TimerService::<u64>::new(0).sleeping(), Arc::new(Bell::default()));
    let timer = service.remote().timer();
    assert!(!matches!(service.sleep(Waker::from(Arc::clone(&bell))), Sleep::Not));
    drop(service);
    assert_eq!((Arc::strong_count(&bell), timer.cancel()), (1, Outcome::Gone));
}

#[test]
fn a_cancellation_waits_until_the_callback_has_ended() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, 7).unwrap();
    let ((begun, has_begun), (cancelled, is_cancelled)) = (mpsc::channel(), mpsc::channel());
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (other, seen) = (timer.clone(), &ended);
        scope.spawn(move || {
            has_begun.recv().unwrap();
            assert_eq!(other.cancel(), Outcome::Running, "at once");
            cancelled.send(()).unwrap();
            assert_eq!(other.cancel_wait(), Outcome::Fired);
            assert_eq!(seen.load(Ordering::Relaxed), 1, "the canceller sees what the callback did");
        });
        let progress = service.run(10, Limit::NONE, |_, event| {
            let own = event.timer().unwrap().clone();
            begun.send(()).unwrap();
            is_cancelled.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
            assert_eq!(own.cancel_wait(), Outcome::Running, "the callback would wait for itself");
            ended.store(1, Ordering::Relaxed);
        });
        assert_eq!(progress.expired(), 1);
    });
    assert_eq!(timer.cancel_wait(), Outcome::Fired);
    service.arm(&timer, 20, 8).unwrap();
    assert_eq!(timer.cancel_wait(), Outcome::Cancelled(8));
}

/// Also if the callback has armed its timer again: what it uses may be freed after the wait.
#[test]
fn a_cancellation_waits_for_a_callback_that_has_armed_its_timer_again() {
    for period in [None, Some(10.try_into().unwrap())] {
        let (mut service, timer) = with_timer();
        let schedule = period.map_or(Schedule::at(10), |period| Schedule::at(10).every(period));
        service.arm(&timer, schedule, 7).unwrap();
        let (armed, is_armed) = mpsc::channel();
        let (begins, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let (other, begins, seen) = (timer.clone(), &begins, &ended);
            scope.spawn(move || {
                is_armed.recv().unwrap();
                begins.store(1, Ordering::Relaxed);
                assert_eq!(other.cancel_wait(), Outcome::Cancelled(9));
                assert_eq!(seen.load(Ordering::Relaxed), 1, "the callback has ended");
            });
            let progress = service.run(10, Limit::NONE, |service, event| {
                let own = event.timer().unwrap();
                service.arm(own, 20, 8).unwrap();
                assert_eq!(own.cancel_wait(), Outcome::Cancelled(8), "the callback does not wait for itself");
                service.arm(own, 20, 9).unwrap();
                armed.send(()).unwrap();
                while begins.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(20));
                ended.store(1, Ordering::Relaxed);
            });
            assert_eq!(progress.expired(), 1);
        });
        assert_eq!(fired(&mut service, 100), []);
    }
}

/// The callback of a cancelled periodic timer is the last, and a callback that panics counts as ended.
#[test]
fn a_cancellation_waits_for_a_beat_and_a_panic() {
    for panics in [false, true] {
        let (mut service, timer) = with_timer();
        service.arm(&timer, Schedule::at(10).every(10.try_into().unwrap()), 7).unwrap();
        let (begun, has_begun) = mpsc::channel();
        thread::scope(|scope| {
            let other = timer.clone();
            let waiter = scope.spawn(move || {
                has_begun.recv().unwrap();
                other.cancel_wait()
            });
            let run = std::panic::AssertUnwindSafe(|| {
                service.run(10, Limit::NONE, |_, _| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(10));
                    assert!(!panics, "on purpose");
                })
            });
            assert_eq!(std::panic::catch_unwind(run).is_err(), panics);
            assert!(!matches!(waiter.join().unwrap(), Outcome::Running));
        });
        assert_eq!((fired(&mut service, 100), service.stats().timers), (vec![], 0));
    }
}

#[test]
fn only_what_is_earlier_wakes_the_owner() {
    let mut service = TimerService::new(0).sleeping();
    let timers: Vec<_> = (0..8).map(|_| service.remote().timer()).collect();
    let mut mailbox = service.remote().mailbox(4);
    let bell = Arc::new(Bell::default());
    let sleep = |service: &mut TimerService<u64>| service.sleep(Waker::from(Arc::clone(&bell)));
    assert_eq!(sleep(&mut service), Sleep::Not, "a mailbox was made");
    assert_eq!(fired(&mut service, 0), []);
    assert_eq!(sleep(&mut service), Sleep::Forever);
    mailbox.add(&timers[0], 20, 0).unwrap();
    assert_eq!((bell.rung(), sleep(&mut service)), (1, Sleep::Not));
    assert_eq!(fired(&mut service, 1), []);
    assert_eq!(sleep(&mut service), Sleep::Until(20));
    mailbox.add(&timers[1], 20, 1).unwrap();
    assert_eq!(bell.rung(), 1, "the deadline is no earlier");
    mailbox.add(&timers[2], 19, 2).unwrap();
    assert_eq!(bell.rung(), 2);
    mailbox.add(&timers[3], 18, 3).unwrap();
    assert_eq!(bell.rung(), 2, "once");
    assert_eq!(fired(&mut service, 2), []);
    // A cancellation does not wake the owner; a revocation does.
    assert_eq!(sleep(&mut service), Sleep::Until(18));
    assert!(timers[3].cancel().is_cancelled());
    assert_eq!(bell.rung(), 2);
    assert!(timers[2].revoke().is_cancelled());
    assert_eq!(bell.rung(), 3);
    assert_eq!(fired(&mut service, 3), [(19, 2)]);
    // A delay, a reset and a full mailbox each wake the owner.
    assert_eq!(sleep(&mut service), Sleep::Until(20));
    mailbox.add(&timers[4], Schedule::after(1_000), 4).unwrap();
    assert_eq!((bell.rung(), fired(&mut service, 4)), (4, vec![]));
    assert_eq!(sleep(&mut service), Sleep::Until(20));
    mailbox.reset(&timers[0], 10).unwrap();
    assert_eq!((bell.rung(), fired(&mut service, 5)), (5, vec![]));
    assert_eq!(sleep(&mut service), Sleep::Until(10));
    let mut burst = mailbox.burst();
    for _ in 0..4 {
        let timer = service.remote().timer();
        burst.add(&timer, 500, 5).unwrap();
    }
    assert_eq!(bell.rung(), 5);
    assert_eq!(burst.add(&timers[5], 500, 5), Err(ArmError::Full(5)));
    assert_eq!(bell.rung(), 6, "the owner has to make room");
    drop(burst);
    assert_eq!(service.stats().timers, 3);
}

#[test]
fn an_alarm_is_taken_back_when_the_owner_wakes_by_itself() {
    let mut service = TimerService::new(0).sleeping();
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(4));
    let bell = Arc::new(Bell::default());
    service.add(10, 1).unwrap();
    assert_eq!(fired(&mut service, 0), []);
    assert_eq!(service.sleep(Waker::from(Arc::clone(&bell))), Sleep::Until(10));
    assert_eq!(fired(&mut service, 10), [(10, 1)]);
    assert_eq!(Arc::strong_count(&bell), 1);
    mailbox.add(&timer, 11, 2).unwrap();
    assert_eq!(bell.rung(), 0);
    // The owner does not sleep while a timer is due.
    service.add(5, 3).unwrap();
    assert_eq!(service.sleep(Waker::from(Arc::clone(&bell))), Sleep::Not);
}

#[test]
#[should_panic(expected = "sleeping")]
fn a_service_that_was_not_made_so_does_not_sleep() {
    let _ = TimerService::<u64>::new(0).sleep(Waker::noop().clone());
}

#[test]
#[should_panic(expected = "before `remote`")]
fn a_service_whose_senders_do_not_know_is_not_made_so() {
    let service = TimerService::<u64>::new(0);
    let _remote = service.remote();
    drop(service.sleeping());
}

/// Threads send deadlines that are always earlier than the owner's wake-up time. If a wake-up were lost, the owner
/// would never wake.
#[test]
fn an_owner_that_parks_gets_every_message() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let mut service = TimerService::new(0).sleeping();
    let remote = service.remote();
    thread::scope(|scope| {
        for _ in 0..2 {
            let remote = remote.clone();
            scope.spawn(move || {
                let mut mailbox = remote.mailbox(64);
                for round in 0..rounds {
                    let timer = remote.timer();
                    while mailbox.add(&timer, 1, round).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut got = 0;
        while got < 2 * rounds {
            match service.sleep(thread::current()) {
                Sleep::Not => {}
                // Without a time limit: a lost wake-up hangs the test.
                Sleep::Forever => thread::park(),
                Sleep::Until(time) => {
                    panic!("everything due has fired, but the owner may sleep only until {time}")
                }
            }
            got += fired(&mut service, 2).len() as u64;
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot call the system this way")]
fn a_descriptor_becomes_readable() {
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("a descriptor");
    let mut service = TimerService::new(0).sleeping();
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(4));
    let event: Arc<OwnedFd> = Arc::new(event);
    assert_eq!(fired(&mut service, 0), []);
    assert_eq!(service.sleep(Alarm::from(Arc::clone(&event))), Sleep::Forever);
    mailbox.add(&timer, 10, 7).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(event.as_fd(), &mut bytes).unwrap(), 8);
    assert_eq!(u64::from_ne_bytes(bytes), 1);
    assert_eq!(fired(&mut service, 10), [(10, 7)]);
}

#[test]
fn a_task_is_woken_and_asks_again() {
    let mut service = TimerService::new(0).sleeping();
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(4));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    let mut got = Vec::new();
    let mut poll = |service: &mut TimerService<u64>, now| {
        service
            .poll_run(now, Limit::NONE, &mut cx, |_, mut event| got.push(*event.value()))
            .map(|p| p.expired())
    };
    assert_eq!(poll(&mut service, 5), Poll::Pending);
    mailbox.add(&timer, 10, 7).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(poll(&mut service, 6), Poll::Pending);
    assert_eq!(service.next_deadline(), Some(10));
    assert_eq!(poll(&mut service, 10), Poll::Ready(1));
    assert_eq!(poll(&mut service, 10), Poll::Pending);
    assert_eq!(got, [7]);
}
