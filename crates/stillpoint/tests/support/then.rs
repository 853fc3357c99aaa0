//! Objects whose destructor calls a function of the test.

use std::fmt;

/// Calls a function when it is dropped.
pub(crate) struct Then(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Then {
    pub(crate) fn new(function: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(function)))
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        let function = self.0.take().expect("a destructor runs once");
        function();
    }
}

impl fmt::Debug for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Then")
    }
}
