//! For comparison: only timers in doubly linked lists, as in the wheel. No key is checked, no level or slot is
//! computed, and no timer fires. This is not a lower bound: in some runs, the wheel was faster.

use stillpoint_peers::timer::{Ability, TimerContender};

/// The number of lists; a power of two.
const LISTS: usize = 4;

struct Timer {
    value: Option<u64>,
    deadline: u64,
    generation: u64,
}

/// Links are indices of 32 bits, and heads are links, too; a handle is 8 bytes.
pub(super) struct Floor {
    links: Vec<[u32; 2]>,
    timers: Vec<Timer>,
    handles: Vec<u64>,
    free: u32,
}

impl Floor {
    pub(super) fn new(timers: usize) -> Self {
        let heads = (0..LISTS as u32).map(|head| [head, head]);
        // Each free place links to the next one.
        let links = heads.chain((0..timers as u32).map(|place| [0, place + 1 + LISTS as u32]));
        Self {
            links: links.collect(),
            timers: (0..timers).map(|_| Timer { value: None, deadline: 0, generation: 0 }).collect(),
            handles: Vec::with_capacity(timers),
            free: LISTS as u32,
        }
    }
}

impl TimerContender for Floor {
    fn can(&self, _: Ability) -> bool {
        false
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        for &delay in delays {
            let index = self.free;
            let head = delay as usize / 64 % LISTS;
            let last = self.links[head][0];
            self.free = self.links[index as usize][1];
            self.links[index as usize] = [last, head as u32];
            self.links[head][0] = index;
            self.links[last as usize][1] = index;
            let timer = &mut self.timers[index as usize - LISTS];
            timer.value = Some(1);
            timer.deadline = delay;
            self.handles.push(timer.generation << 32 | u64::from(index));
        }
        Ok(())
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        order.iter().fold(0, |sum, &which| {
            let index = self.handles[which as usize] as u32 as usize;
            let timer = &mut self.timers[index - LISTS];
            timer.generation += 1;
            let value = timer.value.take();
            let [prev, next] = self.links[index];
            self.links[prev as usize][1] = next;
            self.links[next as usize][0] = prev;
            self.links[index][1] = self.free;
            self.free = index as u32;
            sum + value.unwrap_or(0)
        })
    }

    fn forget(&mut self) {
        self.handles.clear();
    }

    /// No timer fires, so a poll is an empty loop.
    fn millisecond(&self) -> Option<u64> {
        Some(1)
    }
}
