//! A thread beside the test, which does one thing each time that it is told to, and sleeps in between. Its reader is silent while it
//! sleeps, if it has loaded something: writers issue heavy fences for it. They issue none for a reader of their own thread. The parent
//! of this module has the domains.

use std::panic;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::Domain;

/// A reader on another thread that has loaded something, and does nothing since.
#[allow(dead_code, reason = "some tests tell their readers what to do")]
pub(crate) fn silent(domain: &Domain) -> Other {
    let domain = domain.clone();
    Other::start(move |turns| {
        let reader = domain.reader();
        drop(reader.pin());
        turns.for_each(|()| ());
    })
}

pub(crate) struct Other {
    go_on: Option<Sender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// The turns of the thread. It ends when there are no more.
pub(crate) struct Turns {
    done: Sender<()>,
    go_on: Receiver<()>,
}

impl Iterator for Turns {
    type Item = ();

    /// Says that what came before is done, and sleeps until the next turn.
    fn next(&mut self) -> Option<()> {
        let _ = self.done.send(());
        self.go_on.recv().ok()
    }
}

impl Other {
    /// Starts the thread, and waits until it sleeps before its first turn.
    pub(crate) fn start(body: impl FnOnce(Turns) + Send + 'static) -> Self {
        let ((go_on, is_told), (ready, done)) = (mpsc::channel(), mpsc::channel());
        let thread = thread::spawn(move || body(Turns { done: ready, go_on: is_told }));
        let other = Self { go_on: Some(go_on), done, thread: Some(thread) };
        other.wait();
        other
    }

    /// Has the thread take a turn, and waits until it has done.
    #[allow(dead_code, reason = "some readers stay silent")]
    pub(crate) fn turn(&self) {
        // If the thread has panicked, the wait fails.
        let _ = self.go_on.as_ref().expect("it is there until the end").send(());
        self.wait();
    }

    fn wait(&self) {
        self.done.recv().expect("the other thread does not panic");
    }
}

/// The thread ends, and with it its readers.
impl Drop for Other {
    fn drop(&mut self) {
        self.go_on = None;
        let answer = self.thread.take().expect("it is joined once").join();
        if let (Err(payload), false) = (answer, thread::panicking()) {
            panic::resume_unwind(payload);
        }
    }
}
