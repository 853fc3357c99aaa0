//! A mailbox that threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;

use stillpoint::timer::shared::{ArmError, Outcome, SharedTimer, Sleep, TimerService};
use stillpoint::timer::{Limit, Schedule};

const THREADS: usize = 8;
const TIMERS: usize = if cfg!(miri) { 10 } else { 500 };

/// Threads come and go, and the owner polls meanwhile. The mailbox is often full.
#[test]
fn each_timer_of_many_threads_fires_once() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mailbox = remote.shared_mailbox(16);
    let left = AtomicUsize::new(THREADS);
    let mut fired = [[0; TIMERS]; THREADS];
    let timers = thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (remote, mailbox, left) = (&remote, &mailbox, &left);
                scope.spawn(move || {
                    let add = |number| {
                        let timer = remote.timer();
                        while let Err(error) = mailbox.add(&timer, 10, (thread, number)) {
                            assert!(matches!(error, ArmError::Full(_)), "{error}");
                            thread::yield_now();
                        }
                        timer
                    };
                    let timers: Vec<_> = (0..TIMERS).map(add).collect();
                    left.fetch_sub(1, Ordering::Release);
                    timers
                })
            })
            .collect();
        // Until the first run after all of them have been added.
        let mut is_last = false;
        while !is_last {
            is_last = left.load(Ordering::Acquire) == 0;
            let _ = service.run(10, Limit::NONE, |_, mut event| {
                let (thread, number) = *event.value();
                fired[thread][number] += 1;
            });
        }
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect::<Vec<SharedTimer<_>>>()
    });
    assert!(fired.iter().flatten().all(|&times| times == 1), "{fired:?}");
    assert!(timers.iter().all(|timer| timer.cancel() == Outcome::Fired));
}

#[test]
fn what_is_refused_comes_back() {
    let (mut service, stranger) = (TimerService::new(0), TimerService::new(0));
    let (remote, timer) = (service.remote(), service.remote().timer());
    let mailbox = remote.shared_mailbox(4);
    assert_eq!(mailbox.add(&stranger.remote().timer(), 10, 1), Err(ArmError::Foreign(1)));
    mailbox.add(&timer, 10, 2).unwrap();
    assert_eq!(mailbox.add(&timer, 10, 3), Err(ArmError::Armed(3)));
    mailbox.reset(&timer, 20).unwrap();
    assert_eq!(service.run(19, Limit::NONE, |_, _| {}).expired(), 0);
    assert_eq!(service.run(20, Limit::NONE, |_, _| {}).expired(), 1);
    drop(service);
    assert_eq!(mailbox.add(&timer, 30, 4), Err(ArmError::Gone(4)));
    assert_eq!(mailbox.reset(&timer, 30), Err(ArmError::Gone(())));
}

/// A thread that is held up in an alarm is in nobody's way, until there is one in each of the mailboxes.
#[test]
fn no_call_waits_for_another_thread() {
    struct HeldUp(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

    impl Wake for HeldUp {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            let _ = self.1.lock().unwrap().recv();
        }
    }

    let mut service = TimerService::new(0).sleeping();
    let remote = service.remote();
    let mailbox = Arc::new(remote.shared_mailbox(1));
    let (held, is_held) = mpsc::channel();
    // Each of them has one place.
    let mailboxes = mailbox.capacity();
    let (mut ends, mut held_up) = (Vec::new(), Vec::new());
    for _ in 0..mailboxes {
        mailbox.reset(&remote.timer(), 10).expect_err("it is at rest: no call waits");
        // What was sent before keeps the owner awake no more.
        assert_eq!(service.run(0, Limit::NONE, |_, _| {}).expired(), 0);
        let (end, ended) = mpsc::channel();
        ends.push(end);
        let alarm = HeldUp(held.clone(), Mutex::new(ended));
        assert_ne!(service.sleep(Waker::from(Arc::new(alarm))), Sleep::Not);
        let (mailbox, timer) = (Arc::clone(&mailbox), remote.timer());
        held_up.push(thread::spawn(move || mailbox.add(&timer, Schedule::after(10), 1).unwrap()));
        is_held.recv().unwrap();
    }
    assert_eq!(mailbox.add(&remote.timer(), 10, 2), Err(ArmError::Full(2)), "it does not wait either");
    drop(ends);
    held_up.into_iter().for_each(|adds| adds.join().unwrap());
    mailbox.add(&remote.timer(), 10, 2).unwrap();
    assert_eq!(service.run(0, Limit::NONE, |_, _| {}).expired(), 0);
    assert_eq!(service.run(10, Limit::NONE, |_, _| {}).expired(), mailboxes + 1);
}

/// The alarm that an addition rings may add a timer itself.
#[test]
fn an_alarm_may_use_the_mailbox() {
    struct Adds(Box<dyn Fn() + Send + Sync>);

    impl Wake for Adds {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    let mut service = TimerService::new(0).sleeping();
    let (remote, mailbox) = (service.remote(), Arc::new(service.remote().shared_mailbox(8)));
    let (own, timer) = (Arc::clone(&mailbox), remote.timer());
    let adds = Adds(Box::new(move || own.add(&timer, 10, "alarm").unwrap()));
    assert!(service.run(0, Limit::NONE, |_, _| {}).is_done()); // it knows the mailbox now
    assert_ne!(service.sleep(Waker::from(Arc::new(adds))), Sleep::Not);
    mailbox.add(&remote.timer(), 10, "thread").unwrap();
    let mut fired = Vec::new();
    let _ = service.run(10, Limit::NONE, |_, mut event| fired.push(*event.value()));
    fired.sort_unstable();
    assert_eq!(fired, ["alarm", "thread"]);
}
