use super::{Wheel, END};

/// An iterator over the values of all timers: see [`Wheel::drain`].
#[derive(Debug)]
pub struct Drain<'a, T> {
    wheel: &'a mut Wheel<T>,
    index: u32,
}

impl<'a, T> Drain<'a, T> {
    pub(super) fn new(wheel: &'a mut Wheel<T>) -> Self {
        Self { wheel, index: 0 }
    }
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.index != END {
            if let Some((_, _, value)) = self.wheel.core.store.take_from(&mut self.index) {
                return Some(value);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.wheel.len()))
    }
}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
