//! How a fence by signals looks after those who do not answer, and when it gives up.
//!
//! A thread that blocks the signal is told from one that is merely not running. The handler itself runs with the signal
//! blocked, and so do sections of the C library: a thread that is preempted there shows the signal as blocked until it
//! is given a processor. So what blocks the signal counts if the thread has slept, or has computed for longer than a
//! handler takes, and has not answered.

use std::time::{Duration, Instant};

use super::engine::Missing;
use super::run::Late;
use super::signals::answer;
use crate::sys::signal::{self, Sight};

/// After so long, a fence looks who blocks the signal; again after twice the time, and so on.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(100);
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Two ticks apart are at least 10 ms. A handler that forwards to a thousand threads takes about 5 ms.
const TICKS_IN_VAIN: u64 = 2;

/// How a fence looks after those who do not answer.
#[derive(Debug)]
pub(super) struct Looks {
    signal: i32,
    begun: Instant,
    limit: Duration,
    suspects: Suspects,
    /// Who was gone the last time.
    gone: Vec<u32>,
    /// Why the fence fails.
    verdict: Option<Late>,
}

impl Looks {
    pub(super) fn new(signal: i32) -> Self {
        let (suspects, gone) = (Suspects::default(), Vec::new());
        Self { signal, begun: Instant::now(), limit: FIRST_LOOK, suspects, gone, verdict: None }
    }

    /// When to look.
    pub(super) fn next(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Says when to look again, or that it is in vain.
    pub(super) fn look(&mut self, missing: &Missing) -> Option<Instant> {
        let mut late = Late::new(missing, Some(self.signal));
        let seen = late.blocked.iter().filter_map(|&tid| Some((tid, Sight::of(tid, self.signal)?)));
        late.blocked = self.suspects.look(seen.filter(|(_, sight)| sight.blocks));
        if late.is_hopeless(&self.gone, self.begun.elapsed()) {
            self.verdict = Some(late);
            return None;
        }
        self.gone = late.ended;
        self.limit = (self.limit * 2).min(LONGEST_LOOK);
        Some(self.next())
    }

    pub(super) fn verdict(self) -> Late {
        self.verdict.expect("a fence gives up after a look alone")
    }
}

/// Those who have not answered, and blocked the signal each time somebody looked.
#[derive(Debug, Default)]
struct Suspects(Vec<Suspect>);

#[derive(Debug, Clone, Copy)]
struct Suspect {
    tid: u32,
    /// Its time on a processor when it was seen first.
    ticks: u64,
    /// Whether it slept when it was seen last.
    slept: bool,
}

impl Suspects {
    /// Takes down who blocks the signal now. Returns those who would not answer however long one waits.
    fn look(&mut self, seen: impl Iterator<Item = (u32, Sight)>) -> Vec<u32> {
        let mut blocking = Vec::new();
        let now = seen.map(|(tid, sight)| {
            let before = self.0.iter().find(|suspect| suspect.tid == tid);
            if before.is_some_and(|before| {
                before.slept && sight.sleeps || sight.ticks >= before.ticks + TICKS_IN_VAIN
            }) {
                blocking.push(tid);
            }
            Suspect { tid, ticks: before.map_or(sight.ticks, |before| before.ticks), slept: sight.sleeps }
        });
        self.0 = now.collect();
        blocking
    }
}

impl Late {
    /// Whether to wait longer would be in vain: the handler has been replaced, the signal cannot be sent, a thread
    /// blocks the signal, or was gone the last time as well, or nobody can tell.
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
                // Again: as long as one that could not be sent is not made up for, nobody announces what follows it.
                if !self.is_replaced {
                    self.refused = signal::send(tid, signal).err().unwrap_or(self.refused);
                }
                match Sight::of(tid, signal) {
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
        (tid, Sight { blocks: true, sleeps: false, ticks })
    }

    fn sleeping(tid: u32, ticks: u64) -> (u32, Sight) {
        (tid, Sight { blocks: true, sleeps: true, ticks })
    }

    /// Whom each of several looks, one after the other, finds to block the signal.
    fn verdicts<const LOOKS: usize>(looks: [Vec<(u32, Sight)>; LOOKS]) -> [Vec<u32>; LOOKS] {
        let mut suspects = Suspects::default();
        looks.map(|seen| suspects.look(seen.into_iter()))
    }

    /// In the middle of the handler, say, each time. That it has had a tick is the rounding.
    #[test]
    fn a_thread_that_is_merely_not_running_is_waited_for() {
        let looks = [vec![running(7, 40)], vec![running(7, 40)], vec![running(7, 41)], vec![running(7, 41)]];
        assert!(verdicts(looks).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_thread_that_computes_or_sleeps_blocks_the_signal() {
        assert_eq!(verdicts([vec![running(7, 40)], vec![running(7, 60)]]), [vec![], vec![7]]);
        assert_eq!(verdicts([vec![sleeping(7, 40)], vec![sleeping(7, 40)]]), [vec![], vec![7]]);
        // Given little time by others, and more and more of it.
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
    fn each_thread_is_taken_for_itself() {
        let looks =
            [vec![sleeping(7, 40), running(8, 10)], vec![sleeping(8, 10), sleeping(7, 40), sleeping(9, 0)]];
        assert_eq!(verdicts(looks), [vec![], vec![7]]);
    }
}
