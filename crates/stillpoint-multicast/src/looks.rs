//! How a fence by signals checks on threads that do not answer, and when it gives up.
//!
//! It has to distinguish a thread that blocks the signal from a thread that only does not run. The handler runs with
//! the signal blocked, and so do sections of the C library: a thread that is preempted there shows the signal as
//! blocked until it gets a processor. So a blocked signal counts only if the thread has slept, or has run for longer
//! than a handler takes, and has not answered.
//!
//! A thread that blocks the signal and waits for it (`sigwait`) takes it away without a handler, and does not show it as
//! blocked meanwhile. So a thread also counts if it was sent the signal, sleeps, and does not show it as pending: one
//! that merely has not run since shows it as pending, and one that handles it as blocked.

use std::time::{Duration, Instant};

use super::bell::answer;
use super::engine::Missing;
use super::run::Late;
use super::signal::{self, Sight};

/// The time after which a fence first looks which threads block the signal. The time doubles after each look.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(100);
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Two ticks are at least 10 ms apart. A handler that forwards to a thousand threads takes about 5 ms.
const TICKS_IN_VAIN: u64 = 2;

/// A fence's looks at the threads that do not answer.
#[derive(Debug)]
pub(super) struct Looks {
    signal: i32,
    begun: Instant,
    limit: Duration,
    suspects: Suspects,
    /// The threads that did not exist at the last look.
    gone: Vec<u32>,
    /// Why the fence fails.
    verdict: Option<Late>,
}

impl Looks {
    pub(super) fn new(signal: i32) -> Self {
        let (suspects, gone) = (Suspects::default(), Vec::new());
        Self { signal, begun: Instant::now(), limit: FIRST_LOOK, suspects, gone, verdict: None }
    }

    /// The time of the next look.
    pub(super) fn next(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Looks at the missing threads. Returns the time of the next look, or `None` if it is useless to wait.
    pub(super) fn look(&mut self, missing: &Missing) -> Option<Instant> {
        // Before the signal is sent again.
        let seen = missing.threads.iter().filter_map(|&tid| Some((tid, Sight::of(tid, self.signal)?)));
        let seen: Vec<_> = seen.collect();
        let mut late = Late::new(missing, Some(self.signal));
        late.blocked = self.suspects.look(&seen, seen.len() == missing.threads.len());
        if late.is_hopeless(&self.gone, self.begun.elapsed()) {
            self.verdict = Some(late);
            return None;
        }
        self.gone = late.ended;
        self.limit = (self.limit * 2).min(LONGEST_LOOK);
        Some(self.next())
    }

    pub(super) fn verdict(self) -> Late {
        self.verdict.expect("a fence gives up only after a look")
    }
}

/// The threads that have not answered, and for which that is suspicious at each look.
#[derive(Debug, Default)]
struct Suspects {
    suspects: Vec<Suspect>,
    /// Threads to which the signal was sent after their message was posted.
    rung: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Suspect {
    tid: u32,
    /// Its processor time at the first look.
    ticks: u64,
    /// Whether it slept at the last look, and blocked the signal.
    slept: bool,
    blocked: bool,
}

impl Suspects {
    /// Records the threads that have not answered, as they are before the signal is sent to them again. Returns those that would
    /// never answer: they block the signal, or take it away. Two looks of one kind are needed. `are_all`: there are no others.
    fn look(&mut self, seen: &[(u32, Sight)], are_all: bool) -> Vec<u32> {
        let mut blocking = Vec::new();
        let takes_away = |tid, sight: &Sight| sight.sleeps && !sight.is_pending && self.rung.contains(tid);
        let suspected = seen.iter().filter(|(tid, sight)| sight.blocks || takes_away(tid, sight));
        let now = suspected.map(|&(tid, sight)| {
            let before = self.suspects.iter().find(|suspect| suspect.tid == tid);
            if before.is_some_and(|before| {
                let still_sleeps = before.slept && sight.sleeps && before.blocked == sight.blocks;
                still_sleeps || sight.blocks && sight.ticks >= before.ticks + TICKS_IN_VAIN
            }) {
                blocking.push(tid);
            }
            let ticks = before.map_or(sight.ticks, |before| before.ticks);
            Suspect { tid, ticks, slept: sight.sleeps, blocked: sight.blocks }
        });
        self.suspects = now.collect();
        // A thread in the handler may have counted another one, and not posted to it yet: then that one handles the signal, and
        // has nothing to answer.
        if are_all && !seen.iter().any(|(_, sight)| sight.blocks) {
            self.rung = seen.iter().map(|&(tid, _)| tid).collect();
        }
        blocking
    }
}

impl Late {
    /// Whether it is useless to wait longer: the handler was replaced, the signal cannot be sent, a thread blocks the signal, a
    /// thread did not exist at two looks, or the cause has been unknown for too long.
    fn is_hopeless(&self, gone: &[u32], waited: Duration) -> bool {
        let is_unknown = !self.unknown.is_empty() && waited >= LONGEST_LOOK;
        self.is_replaced
            || self.refused != 0
            || is_unknown
            || !self.blocked.is_empty()
            || self.ended.iter().any(|thread| gone.contains(thread))
    }

    /// Looks why the signal does not get through, if one was used.
    pub(super) fn looked_at(mut self) -> Self {
        if let Some(signal) = self.signal {
            self.is_replaced = !signal::is_handled_by(signal, answer);
            for &tid in &self.threads {
                // Sends it again: if a signal could not be sent, later messages are not announced either. The present answer of
                // the kernel counts: it may have refused the signal to another thread, or earlier.
                if !self.is_replaced {
                    self.refused = signal::send(tid, signal).err().unwrap_or(self.refused);
                }
                match Sight::of(tid, signal) {
                    Some(sight) if sight.has_ended => self.ended.push(tid),
                    Some(sight) if sight.blocks => self.blocked.push(tid),
                    Some(_) => {}
                    None if signal::is_gone(tid) => self.ended.push(tid),
                    None => self.unknown.push(tid),
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(tid: u32, ticks: u64) -> (u32, Sight) {
        (tid, Sight { blocks: true, is_pending: true, sleeps: false, has_ended: false, ticks })
    }

    fn sleeping(tid: u32, ticks: u64) -> (u32, Sight) {
        (tid, Sight { sleeps: true, ..running(tid, ticks).1 })
    }

    /// It does not block the signal, and has handled it or taken it away.
    fn idle(tid: u32) -> (u32, Sight) {
        (tid, Sight { blocks: false, is_pending: false, ..sleeping(tid, 0).1 })
    }

    /// For each of several looks, one after the other: the threads that it finds to block the signal.
    fn verdicts<const LOOKS: usize>(looks: [Vec<(u32, Sight)>; LOOKS]) -> [Vec<u32>; LOOKS] {
        let mut suspects = Suspects::default();
        looks.map(|seen| suspects.look(&seen, true))
    }

    /// For example, it is in the middle of the handler at each look. A difference of one tick is rounding.
    #[test]
    fn a_thread_that_is_merely_not_running_is_waited_for() {
        let looks = [vec![running(7, 40)], vec![running(7, 40)], vec![running(7, 41)], vec![running(7, 41)]];
        assert!(verdicts(looks).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_thread_that_computes_or_sleeps_blocks_the_signal() {
        assert_eq!(verdicts([vec![running(7, 40)], vec![running(7, 60)]]), [vec![], vec![7]]);
        assert_eq!(verdicts([vec![sleeping(7, 40)], vec![sleeping(7, 40)]]), [vec![], vec![7]]);
        // It gets little processor time, which adds up.
        let looks = [vec![running(7, 40)], vec![running(7, 41)], vec![running(7, 42)]];
        assert_eq!(verdicts(looks), [vec![], vec![], vec![7]]);
    }

    #[test]
    fn a_thread_that_sleeps_once_in_a_while_is_waited_for() {
        let looks = [vec![sleeping(7, 40)], vec![running(7, 40)], vec![sleeping(7, 41)]];
        assert!(verdicts(looks).iter().all(Vec::is_empty));
        // It has unblocked the signal, or answered, meanwhile.
        assert!(verdicts([vec![sleeping(7, 40)], vec![], vec![sleeping(7, 90)]]).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_thread_that_takes_the_signal_away_blocks_it() {
        // The first look cannot tell whether the signal was sent to it.
        let looks = [vec![idle(7)], vec![idle(7)], vec![idle(7)]];
        assert_eq!(verdicts(looks), [vec![], vec![], vec![7]]);
        // At some looks it is between two waits, and blocks the signal.
        let looks = [vec![idle(7)], vec![running(7, 0)], vec![idle(7)], vec![idle(7)]];
        assert_eq!(verdicts(looks), [vec![], vec![], vec![], vec![7]]);
    }

    /// It was preempted in the handler, has answered between the look at the messages and that at the threads, and has computed.
    #[test]
    fn a_thread_that_has_just_answered_does_not_take_the_signal_away() {
        let answered = (7, Sight { ticks: 90, ..idle(7).1 });
        assert!(verdicts([vec![idle(7)], vec![running(7, 0)], vec![answered]]).iter().all(Vec::is_empty));
        let preempted = (7, Sight { sleeps: true, ..running(7, 0).1 });
        assert!(verdicts([vec![idle(7)], vec![preempted], vec![answered]]).iter().all(Vec::is_empty));
    }

    /// There may be one more, which is in the handler.
    #[test]
    fn a_look_that_does_not_see_all_is_no_reason() {
        let mut suspects = Suspects::default();
        for _ in 0..4 {
            assert!(suspects.look(&[idle(7)], false).is_empty());
        }
    }

    #[test]
    fn a_sleeper_that_does_not_take_the_signal_away_is_waited_for() {
        // It is about to wake up, or has just been sent the signal by another thread.
        let waking = (7, Sight { is_pending: true, ..idle(7).1 });
        let awake = (7, Sight { sleeps: false, ..idle(7).1 });
        for other in [waking, awake] {
            let looks = [vec![idle(7)], vec![idle(7)], vec![other], vec![idle(7)], vec![other], vec![other]];
            assert!(verdicts(looks).iter().all(Vec::is_empty), "{other:?}");
        }
        // The thread that is to post its message to it is in the handler, and has no processor.
        let handling = || vec![running(8, 4), idle(7)];
        assert!(verdicts([handling(), handling(), handling(), handling()]).iter().all(Vec::is_empty));
        // Since the message was posted, there were no two looks.
        let looks = [handling(), handling(), vec![idle(7)], vec![idle(7)], vec![idle(7)]];
        assert_eq!(verdicts(looks), [vec![], vec![], vec![], vec![], vec![7]]);
    }

    fn late() -> Late {
        Late::new(&Missing { receivers: 3, threads: Vec::new() }, Some(libc::SIGWINCH))
    }

    /// The only fault is a missing answer: the handler of the signal is taken for ours.
    fn late_without_a_reason() -> Late {
        Late { is_replaced: false, threads: vec![7], ..late() }
    }

    #[test]
    fn what_a_fence_goes_on_for_and_what_not() {
        let late = late_without_a_reason;
        let waited = Duration::from_secs(1);
        assert!(!late().is_hopeless(&[], waited), "it may not have got a processor");
        assert!(
            !late().is_hopeless(&[7], 10 * LONGEST_LOOK),
            "a thread that does not run is waited for without a limit"
        );
        assert!(Late { is_replaced: true, ..late() }.is_hopeless(&[], waited));
        assert!(Late { refused: libc::EPERM, ..late() }.is_hopeless(&[], waited));
        assert!(Late { blocked: vec![7], ..late() }.is_hopeless(&[], waited));
        // A thread that is gone may have acknowledged just before: it must be gone at two looks.
        let gone = || Late { ended: vec![7], ..late() };
        assert!(!gone().is_hopeless(&[], waited) && !gone().is_hopeless(&[8], 10 * LONGEST_LOOK));
        assert!(gone().is_hopeless(&[8, 7], waited));
        // Without `/proc`, only time decides.
        let unknown = || Late { unknown: vec![7], ..late() };
        assert!(!unknown().is_hopeless(&[], LONGEST_LOOK - Duration::from_nanos(1)));
        assert!(unknown().is_hopeless(&[], LONGEST_LOOK));
    }

    /// The text names the cause that is to be cured first, if there are several.
    #[test]
    fn the_text_names_the_first_cause() {
        let all =
            || Late { is_replaced: true, refused: libc::EPERM, blocked: vec![7], ended: vec![8], ..late() };
        let mut errors = [all(), all(), all(), all(), late_without_a_reason()];
        for (number, error) in errors.iter_mut().enumerate() {
            error.is_replaced &= number < 1;
            error.refused = if number < 2 { error.refused } else { 0 };
            error.blocked.truncate(usize::from(number < 3));
            error.ended.truncate(usize::from(number < 4));
        }
        let expected = [
            "another handler was installed",
            "could not be sent",
            "thread 7 blocks signal",
            "thread 8 has ended without leaving",
            "thread 7 was not given a processor",
        ];
        for (error, cause) in errors.iter().zip(expected) {
            let text = error.to_string();
            assert!(text.contains(cause) && text.contains(" of 3 threads"), "{text}");
        }
    }

    /// A look finds the present state: which threads do not exist, which block the signal, and whether it may be sent.
    #[test]
    fn a_look_says_what_it_sees() {
        let before = signal::handle(libc::SIGVTALRM, answer).expect("the signal is free");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (told, ids) = std::sync::mpsc::channel();
        let tell = told.clone();
        let sleeper = std::thread::spawn(move || {
            let _blocked = signal::block(libc::SIGVTALRM);
            tell.send(stillpoint_sys::linux::thread_id()).expect("the test waits for it");
            let _ = stopped.recv();
        });
        let blocking = ids.recv().expect("the thread runs");
        std::thread::spawn(move || told.send(stillpoint_sys::linux::thread_id())).join().unwrap().unwrap();
        let gone = ids.recv().expect("the thread has run");
        while !signal::is_gone(gone) {
            std::thread::yield_now();
        }
        let missing =
            Missing { receivers: 9, threads: vec![stillpoint_sys::linux::thread_id(), blocking, gone] };
        let seen = Late::new(&missing, Some(libc::SIGVTALRM));
        assert_eq!((seen.blocked(), seen.threads()), (&[blocking][..], &missing.threads[..]));
        assert_eq!(
            (&seen.ended, &seen.unknown, seen.refused),
            (&vec![gone], &vec![], 0),
            "no such thread is no error"
        );
        assert_eq!((seen.is_replaced, seen.receivers()), (false, 9));

        // A fence sees it twice before it gives up, and says when to look again.
        let mut looks = Looks::new(libc::SIGVTALRM);
        let (begun, mut limit) = (Instant::now(), FIRST_LOOK);
        assert!(looks.next() >= begun + limit && looks.next() <= Instant::now() + limit);
        let next = looks.look(&missing).expect("once is not enough");
        limit *= 2;
        assert!(next >= begun + limit && next <= Instant::now() + limit, "after twice the time");
        // A thread that has answered meanwhile is not a suspect any more.
        let only = |tid| Missing { receivers: 9, threads: vec![tid] };
        assert!(looks.look(&only(stillpoint_sys::linux::thread_id())).is_some());
        assert!(
            looks.look(&missing).is_some(),
            "the thread was suspected before, although it had answered in between"
        );
        assert!(looks.look(&missing).is_none());
        assert_eq!(looks.verdict().ended, [gone]);

        stop.send(()).expect("the thread waits for it");
        sleeper.join().expect("it does not panic");
        signal::give_back(libc::SIGVTALRM, answer, &before);
        let seen = Late::new(&missing, Some(libc::SIGVTALRM));
        assert!(seen.is_replaced && seen.refused == 0, "nothing is sent that would end the process");
        // Without a signal there is nothing to look at.
        let polled = Late::new(&missing, None);
        assert_eq!((polled.blocked(), &polled.ended, polled.is_replaced), (&[][..], &vec![], false));
        assert!(polled.to_string().contains("does not poll"), "{polled}");
    }

    #[test]
    fn the_time_between_two_looks_has_a_limit() {
        let mut looks = Looks::new(libc::SIGWINCH);
        let replaced = Missing { receivers: 1, threads: Vec::new() };
        // The handler is not ours.
        assert!(looks.look(&replaced).is_none());
        looks.limit = LONGEST_LOOK;
        let mut looks = Looks { verdict: None, ..looks };
        let before = signal::handle(libc::SIGPROF, answer).expect("the signal is free");
        looks.signal = libc::SIGPROF;
        assert!(looks.look(&replaced).is_some());
        assert_eq!(looks.limit, LONGEST_LOOK);
        signal::give_back(libc::SIGPROF, answer, &before);
    }

    #[test]
    fn each_thread_is_taken_for_itself() {
        let looks =
            [vec![sleeping(7, 40), running(8, 10)], vec![sleeping(8, 10), sleeping(7, 40), sleeping(9, 0)]];
        assert_eq!(verdicts(looks), [vec![], vec![7]]);
    }
}
