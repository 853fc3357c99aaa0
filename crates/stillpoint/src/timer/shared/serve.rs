//! The work of the owner: messages, hints, expiries.

use std::sync::Arc;
use std::task::{Context, Poll};

use stillpoint_sys::os::thread_handle;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::sync::prefetch;

use super::alarm::{Alarm, Sleep};
use super::entry::{begin_delay, has_room_for, keep, take_in, Entry, DELAYED};
use super::event::{Cause, Event, Which};
use super::record::Record;
use super::service::TimerService;
use super::timer::SharedTimer;
use crate::timer::busted::{self, Variant};
use crate::timer::wheel::{poll_within, Expired, Key, Lent, Limit, Progress, Schedule};

/// How far ahead the records of messages are prefetched.
const AHEAD: usize = 8;

impl<T> TimerService<T> {
    /// Calls [`process`](Self::process) without a limit, and then [`manage`](Self::manage). Returns the number of
    /// timers that have fired. Messages are taken at the time of the last call: see [`Schedule::coarse`].
    pub fn run<F>(&mut self, now: u64, limit: Limit, mut callback: F) -> Progress
    where
        F: FnMut(&mut Self, Event<'_, T>),
    {
        let processed = self.process(usize::MAX, &mut callback);
        match self.manage(now, limit, callback) {
            Progress::Done(expired) if !processed.is_done() => Progress::More(expired),
            // An expiry has made room for a message.
            Progress::Done(expired)
                if self.sinks.iter().any(|sink| sink.held_up) && self.wheel.has_room() =>
            {
                Progress::More(expired)
            }
            progress => progress,
        }
    }

    /// Takes timers that other threads have added into the wheel, and timers that they have cancelled out of it: at
    /// most `limit` timers together. Returns their number. The callback gets only the values of
    /// [revoked](SharedTimer::revoke) timers; nothing fires.
    ///
    /// It looks at each mailbox once, and at the cancellations twice. Messages that come later wait for the next call.
    /// With a limit, mailboxes take turns: the next call begins after the mailbox at which the limit was reached.
    ///
    /// Complexity: proportional to the number of timers taken, and of mailboxes.
    ///
    /// [`Progress::More`] means that the limit was reached, or that another thread was making a mailbox, for which this
    /// call did not wait. If a wheel with a [limit](Self::with_max_len) is full, messages stay in their mailboxes. The
    /// result is then not `More`, since another call helps only after a timer has fired or was cancelled, unless this call has taken in a
    /// cancellation since.
    ///
    /// # Panics
    /// With the panic of the callback. The next call does the rest.
    pub fn process<F>(&mut self, limit: usize, mut callback: F) -> Progress
    where
        F: FnMut(&mut Self, Event<'_, T>),
    {
        self.wake_up();
        let mut has_more = self.home.take_rings(&mut self.sinks);
        let mut left = limit;
        // Hints and messages share the limit, so that neither starves the other. The larger half of an odd limit goes
        // to each in turn.
        self.favour = !self.favour;
        let share = limit / 2 + (limit % 2) * usize::from(self.favour);
        self.heed(share, &mut left, &mut callback);
        self.sinks.iter_mut().for_each(|sink| sink.held_up = false);
        let mut over = false;
        for ahead in 0..self.sinks.len() {
            let turn = (self.turn + ahead) % self.sinks.len();
            let had_some = left > 0;
            has_more |= self.empty(turn, &mut left, &mut over);
            if left > 0 {
                continue;
            }
            if had_some {
                // The limit was reached at this ring: the next call begins with the one after it.
                self.turn = turn + 1;
            }
            if has_more {
                break;
            }
        }
        if over {
            // Rings are removed after the round: a removal within it would move another ring to an index that has had
            // its turn.
            self.sinks.retain_mut(|sink| !sink.is_over());
        }
        let rest = left;
        self.heed(rest, &mut left, &mut callback);
        if left < rest {
            // What was cancelled may be what had no room.
            for sink in &mut self.sinks {
                has_more |= std::mem::take(&mut sink.held_up);
            }
        }
        self.show(limit - left);
        has_more |= left == 0 && !(self.hints.is_empty() && self.home.has_no_hints());
        if has_more {
            Progress::More(limit - left)
        } else {
            Progress::Done(limit - left)
        }
    }

    /// Takes at most `share` hints. Reads the stack once, so hints that are given meanwhile wait for the next call.
    fn heed(&mut self, share: usize, left: &mut usize, callback: &mut impl FnMut(&mut Self, Event<'_, T>)) {
        if share > 0 && self.hints.is_empty() {
            self.hints = self.home.take_hints();
        }
        for _ in 0..share {
            let Some(record) = self.hints.pop() else { return };
            *left -= 1;
            self.unlink(SharedTimer(record), callback);
        }
    }

    /// Takes the messages that are in one ring now. Returns whether the limit leaves some in it. Sets `over` if the
    /// ring is not needed any more.
    fn empty(&mut self, turn: usize, left: &mut usize, over: &mut bool) -> bool {
        let Some(sink) = self.sinks.get_mut(turn) else { return false };
        let before = *left;
        let mut known = sink.look();
        let has_more = loop {
            // Messages that the source adds meanwhile wait for the next call, since the source might never stop.
            if known == 0 {
                break false;
            }
            if *left == 0 {
                break true;
            }
            if let Some(later) = sink.peek_ahead(AHEAD) {
                prefetch(later);
            }
            let Some(record) = sink.peek() else { break false };
            if !record.is_kept() {
                // The timer was cancelled. If it is being armed again, that arming has its own message.
                sink.pop();
            } else if has_room_for(&mut self.wheel, record) {
                let Some(record) = sink.pop() else { break false };
                take_in(&mut self.wheel, SharedTimer(record));
            } else {
                sink.held_up = true;
                break false;
            }
            *left -= 1;
            known -= 1;
        };
        if *left != before {
            sink.give_back();
        } else {
            *over |= sink.is_over();
        }
        has_more
    }

    /// Takes a cancelled timer out of the wheel.
    fn unlink(&mut self, timer: SharedTimer<T>, callback: &mut impl FnMut(&mut Self, Event<'_, T>)) {
        let record = &timer.0;
        let mut revoked = record.take_revoked();
        // Relaxed, here and below: only the owner uses these fields.
        let entry = Key::from_bits(record.key.load(Ordering::Relaxed));
        if let (Some((_, generation, schedule)), Some(key)) = (&mut revoked, entry) {
            // A periodic timer has advanced since it was armed, so its present deadline is the one in the wheel.
            // Another thread may have armed the timer again by now, but the entry is still that of the arming that was
            // taken in. A delay that has not begun has none there yet.
            let has_begun =
                !matches!(self.wheel.get(key), Some(Entry::Shared(_, entry)) if entry & DELAYED != 0);
            let is_taken = has_begun && record.taken.load(Ordering::Relaxed) == *generation;
            if let (true, Some(deadline)) = (is_taken, self.wheel.deadline(key)) {
                *schedule = Schedule::at(deadline);
            }
        }
        if let (true, Some(key)) = (record.is_over(), entry) {
            record.key.store(0, Ordering::Relaxed);
            self.wheel.cancel(key);
        }
        if busted::is(Variant::HintMarkLate) {
            record.hinted.store(false, Ordering::Release);
        }
        if let Some((value, _, schedule)) = revoked {
            let deadline = schedule.resolved(self.wheel.now()).deadline;
            let which = Which::Shared(&timer);
            callback(
                self,
                Event { cause: Cause::Revoked, deadline, missed: 0, which, value: Lent::Given(value) },
            );
        }
    }

    /// Announces that this thread is about to sleep, and how to wake it. Only for a service made with
    /// [`sleeping`](Self::sleeping). After any answer except [`Sleep::Not`], the alarm wakes the thread once, as soon
    /// as
    ///
    /// - any thread, this one included, arms or resets a timer whose deadline is before that of the answer;
    /// - another thread arms or resets a shared timer with a delay;
    /// - another thread [revokes](super::SharedTimer::revoke) a timer, or finds its mailbox full;
    /// - this thread [sets the time](Self::set_time).
    ///
    /// Cancellations do not wake the thread. The next [`run`](Self::run), [`process`](Self::process) or
    /// [`manage`](Self::manage) takes the alarm back. An alarm that was already used may wake this thread in vain
    /// later. The time in the answer is that of [`next_deadline`](Self::next_deadline), a lower bound.
    ///
    /// Never waits. Complexity: proportional to the number of mailboxes.
    ///
    /// # Panics
    /// If the service was not made with [`sleeping`](Self::sleeping).
    ///
    /// ```
    /// use std::thread;
    /// use stillpoint::timer::shared::{Sleep, TimerService};
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0).sleeping();
    /// let remote = service.remote();
    /// let other = thread::spawn(move || {
    ///     remote.mailbox(4).add(&remote.timer(), 10, "early").expect("there is room");
    /// });
    /// let mut fired = Vec::new();
    /// while fired.is_empty() {
    ///     match service.sleep(thread::current()) {
    ///         Sleep::Not => {}
    ///         Sleep::Forever => thread::park(),
    ///         // With a clock: `thread::park_timeout`.
    ///         Sleep::Until(deadline) => assert_eq!(deadline, 10),
    ///     }
    ///     let _ = service.run(10, Limit::NONE, |_, event| fired.extend(event.into_value()));
    /// }
    /// assert_eq!(fired, ["early"]);
    /// # other.join().unwrap();
    /// ```
    #[track_caller]
    pub fn sleep(&mut self, alarm: impl Into<Alarm>) -> Sleep {
        self.wake_up();
        let Some(bed) = &self.home.bed else {
            panic!("a service whose thread sleeps must be made with `TimerService::sleeping`")
        };
        let next = self.wheel.next_deadline();
        let is_due = next.is_some_and(|next| next <= self.wheel.now());
        if is_due || !self.hints.is_empty() || !bed.lie_down(next.unwrap_or(u64::MAX), alarm.into()) {
            return Sleep::Not;
        }
        self.asleep = true;
        // A message that the wheel has no room for, and those behind it, must not keep the thread awake: there is no
        // room until a timer fires. But a timer may have been cancelled since.
        let wheel = &mut self.wheel;
        let mut sinks = self.sinks.iter_mut();
        let has_messages = sinks.any(|sink| sink.look() > 0 && (!sink.held_up || wheel.has_room()));
        if has_messages || !self.home.is_quiet() {
            self.wake_up();
            return Sleep::Not;
        }
        next.map_or(Sleep::Forever, Sleep::Until)
    }

    #[inline]
    pub(super) fn wake_up(&mut self) {
        if self.asleep {
            self.asleep = false;
            if let Some(bed) = &self.home.bed {
                bed.rise();
            }
        }
    }

    /// [`run`](Self::run) for a task: `Ready` if the callback was called, or the result is [`Progress::More`]. Otherwise the task
    /// is woken when another thread sends something, or when its own thread adds an earlier timer, as after
    /// [`sleep`](Self::sleep). The caller, who has the clock, must also poll again at
    /// [`next_deadline`](Self::next_deadline), for example with `tokio::time::Sleep`.
    ///
    /// The example `delay_queue` builds a queue on this; its `poll_expired` is the `poll_next` of a `Stream`.
    ///
    /// # Panics
    /// With the panic of the callback, and if the service was not made with [`sleeping`](Self::sleeping).
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use std::task::{Context, Waker};
    /// use stillpoint::timer::shared::TimerService;
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0).sleeping();
    /// let timer = service.remote().timer();
    /// let mut mailbox = service.remote().mailbox(4);
    /// let mut cx = Context::from_waker(Waker::noop());
    ///
    /// assert!(service.poll_run(20, Limit::NONE, &mut cx, |_, _| {}).is_pending());
    /// mailbox.add(&timer, 10, "due")?; // wakes the task
    /// assert!(service.poll_run(20, Limit::NONE, &mut cx, |_, _| {}).is_ready());
    /// # Ok::<(), stillpoint::timer::shared::ArmError<&str>>(())
    /// ```
    pub fn poll_run<F>(
        &mut self,
        now: u64,
        limit: Limit,
        cx: &mut Context<'_>,
        mut callback: F,
    ) -> Poll<Progress>
    where
        F: FnMut(&mut Self, Event<'_, T>),
    {
        let mut was_called = false;
        let progress = self.run(now, limit, |service, event| {
            was_called = true;
            callback(service, event);
        });
        if was_called || !progress.is_done() {
            return Poll::Ready(progress);
        }
        if self.sleep(cx.waker().clone()) == Sleep::Not {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Fires the timers that are due at `now`, as [`Wheel::poll`](crate::timer::Wheel::poll) does for a wheel. Takes
    /// nothing from the mailboxes. A cancelled timer that has not been processed does not count as fired, but counts
    /// towards the limit; so does a delay that begins.
    ///
    /// # Panics
    /// With the panic of the callback. Timers that have not fired fire in the next call.
    #[inline]
    pub fn manage<F>(&mut self, now: u64, limit: Limit, mut callback: F) -> Progress
    where
        F: FnMut(&mut Self, Event<'_, T>),
    {
        self.wake_up();
        let mut me = None;
        let progress = poll_within(
            self,
            |service| &mut service.wheel,
            now,
            limit,
            |service, expired| {
                let Expired { key, deadline, missed, value } = expired;
                let local = Which::Local(key);
                let event = |which, value| Event { cause: Cause::Expired, deadline, missed, which, value };
                match value {
                    Lent::Given(Entry::Local(value)) => callback(service, event(local, Lent::Given(value))),
                    Lent::Lent(Entry::Local(value)) => callback(service, event(local, Lent::Lent(value))),
                    Lent::Given(Entry::Shared(timer, generation)) if generation & DELAYED != 0 => {
                        begin_delay(&mut service.wheel, timer, generation);
                        return false;
                    }
                    Lent::Given(Entry::Shared(timer, generation)) => {
                        // There is no value if the timer was cancelled and its hint is not processed yet, or if the
                        // timer was reset.
                        service.home.run_in(*me.get_or_insert_with(thread_handle));
                        let Some(value) = timer.0.begin(generation) else {
                            timer.0.note_deadline(generation, deadline);
                            keep(&mut service.wheel, timer);
                            return false;
                        };
                        let _running = Running { record: &timer.0, generation };
                        callback(service, event(Which::Shared(&timer), Lent::Given(value)));
                    }
                    Lent::Lent(Entry::Shared(timer, generation)) => {
                        service.home.run_in(*me.get_or_insert_with(thread_handle));
                        let Some(value) = timer.0.begin(*generation) else {
                            timer.0.note_deadline(*generation, deadline);
                            if !timer.0.is_kept() {
                                service.wheel.cancel(key);
                            }
                            return false;
                        };
                        let timer = &*timer;
                        let generation = *generation;
                        let mut beat = Beat { service, key, timer, generation, value: Some(value) };
                        let Beat { service, value: Some(value), .. } = &mut beat else { return false };
                        callback(service, event(Which::Shared(timer), Lent::Lent(value)));
                    }
                }
                true
            },
        );
        self.show(progress.expired());
        progress
    }

    /// Shows the counts of the wheel to other threads, after a call that has done `steps` steps.
    #[inline]
    fn show(&self, steps: usize) {
        if steps > 0 || !self.home.shows(self.wheel.len(), self.wheel.went_back()) {
            self.home.show(self.wheel.stats());
        }
    }
}

/// Ends the callback of a timer that fires once, even after a panic.
struct Running<'a, T> {
    record: &'a Record<T>,
    generation: u64,
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.record.finish(self.generation);
    }
}

/// Ends the callback of a periodic timer, even after a panic. The timer is armed again, or its entry is taken out of
/// the wheel.
struct Beat<'a, T> {
    service: &'a mut TimerService<T>,
    key: Key,
    timer: &'a SharedTimer<T>,
    generation: u64,
    value: Option<T>,
}

impl<T> Drop for Beat<'_, T> {
    fn drop(&mut self) {
        let record = &self.timer.0;
        // If the callback has replaced its service with another one, the timer is over, as its entry is. The entry may also be
        // gone: after a beat at `u64::MAX`, which is the last, or through an invented key. Then no wheel would fire the timer
        // again.
        let is_here = Arc::ptr_eq(&self.service.home, record.home());
        let goes_on = is_here && self.service.wheel.deadline(self.key).is_some();
        let rest = match self.value.take() {
            Some(value) if goes_on => match record.finish_beat(self.generation, value) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            value => value,
        };
        // The value is dropped before the callback counts as ended, even if that panics.
        let _running = Running { record, generation: self.generation };
        if is_here {
            self.service.wheel.cancel(self.key);
            // The callback may have armed it, and another thread have revoked or reset that.
            if record.is_kept() {
                keep(&mut self.service.wheel, self.timer.clone());
            }
        }
        drop(rest);
    }
}
