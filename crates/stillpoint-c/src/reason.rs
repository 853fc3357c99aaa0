//! Why a call failed: a static text and two words, which are put together when the program asks. So a call that fails needs no memory.

use std::cell::Cell;
use std::ffi::{c_char, CStr};
use std::fmt::{self, Display, Write};
use std::ptr;

use crate::own;

/// What stands for a `{}` of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Word {
    Nothing,
    Number(u64),
    Signed(i64),
    Address(usize),
    Text(&'static &'static str),
}

impl Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Number(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

macro_rules! words {
    ($($from:ty as $variant:ident),*) => {$(
        impl From<$from> for Word {
            fn from(word: $from) -> Self {
                Self::$variant(word.into())
            }
        }
    )*};
}

words!(u64 as Number, u32 as Number, i64 as Signed, i32 as Signed, &'static &'static str as Text);

impl From<usize> for Word {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

/// The reason of a failure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    /// A text, and what stands for each `{}` in it.
    Fixed(&'static CStr, [Word; 2]),
    /// What was written to the thread's [`Text`].
    Written,
}

impl Reason {
    pub(crate) const fn fixed(text: &'static CStr) -> Self {
        Self::Fixed(text, [Word::Nothing; 2])
    }

    /// Sets what stands for the next `{}`.
    pub(crate) fn with(mut self, word: impl Into<Word>) -> Self {
        if let Self::Fixed(_, words) = &mut self {
            if let Some(next) = words.iter_mut().find(|word| matches!(word, Word::Nothing)) {
                *next = word.into();
            }
        }
        self
    }

    /// A text that has more in it than two words. It is written now; if the thread has no memory for texts, `otherwise` replaces it.
    pub(crate) fn written(text: fmt::Arguments<'_>, otherwise: &'static CStr) -> Self {
        match own::try_own().and_then(|own| own.last.write(text)) {
            Some(_) => Self::Written,
            None => Self::fixed(otherwise),
        }
    }
}

/// A text of a C program, which ends with a zero. What does not fit is cut off.
#[repr(C)]
pub(crate) struct Text {
    bytes: [u8; Self::BYTES],
    length: usize,
}

impl Text {
    const BYTES: usize = 512;

    pub(crate) fn of(text: impl Display) -> Self {
        let mut own = Self { bytes: [0; Self::BYTES], length: 0 };
        own.set(format_args!("{text}"));
        own
    }

    fn set(&mut self, text: fmt::Arguments<'_>) {
        (self.length, self.bytes[0]) = (0, 0);
        // It fails if a part does not fit.
        let _ = self.write_fmt(text);
    }

    pub(crate) fn start(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = Self::BYTES - 1 - self.length;
        let end = (0..=room.min(part.len())).rev().find(|end| part.is_char_boundary(*end)).unwrap_or(0);
        self.bytes[self.length..][..end].copy_from_slice(&part.as_bytes()[..end]);
        self.length += end;
        self.bytes[self.length] = 0;
        if end == part.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// The reason of a thread's last failure.
pub(crate) struct Last {
    reason: Cell<Reason>,
    /// From `calloc`, or null. The end of the thread frees it: see [`forget_text`](Last::forget_text).
    text: Cell<*mut Text>,
}

impl Last {
    pub(crate) const fn new() -> Self {
        Self { reason: Cell::new(Reason::fixed(c"")), text: Cell::new(ptr::null_mut()) }
    }

    /// Writes to the thread's memory for texts, and returns its start. `None` if the thread has no such memory, and gets none.
    fn write(&self, text: fmt::Arguments<'_>) -> Option<*const c_char> {
        if self.text.get().is_null() && own::awaits_end() {
            // SAFETY: the function has no preconditions. Zeros are a valid text.
            self.text.set(unsafe { libc::calloc(1, size_of::<Text>()) }.cast());
        }
        // SAFETY: null, or a text that only this thread uses, and that no other reference is to: what is written does not come from it,
        // and C code reads it between calls.
        let own = unsafe { self.text.get().as_mut() }?;
        own.set(text);
        Some(own.start())
    }

    /// Frees the memory for texts, when the thread ends.
    pub(crate) fn forget_text(&self) {
        if let Reason::Written = self.reason.get() {
            self.reason.set(Reason::fixed(c""));
        }
        // SAFETY: null, or from `calloc`.
        unsafe { libc::free(self.text.replace(ptr::null_mut()).cast()) };
    }

    fn start(&self) -> *const c_char {
        match self.reason.get() {
            Reason::Fixed(text, [Word::Nothing, _]) => text.as_ptr(),
            Reason::Fixed(text, _) => self.write(format_args!("{LastReason}")).unwrap_or(text.as_ptr()),
            // SAFETY: null, or a text that only this thread uses.
            Reason::Written => unsafe { self.text.get().as_ref() }.map_or(c"".as_ptr(), Text::start),
        }
    }
}

/// The reason of the calling thread's last failure.
pub(crate) struct LastReason;

impl Display for LastReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(own) = own::find() else { return Ok(()) };
        match own.last.reason.get() {
            Reason::Fixed(text, words) => {
                let parts = text.to_str().unwrap_or_default().split("{}");
                let words = std::iter::once(Word::Nothing).chain(words);
                words.zip(parts).try_for_each(|(word, part)| write!(f, "{word}{part}"))
            }
            Reason::Written => {
                // SAFETY: the start of a text that ends with a zero, and that nothing writes meanwhile.
                let text = unsafe { CStr::from_ptr(own.last.start()) };
                f.write_str(text.to_str().unwrap_or_default())
            }
        }
    }
}

/// Sets the reason that [`still_error`] returns on the calling thread.
///
/// Without memory for the thread's first block, not even in the reserve, there is no reason.
pub(crate) fn say(reason: Reason) {
    if let Some(own) = own::try_own() {
        own.last.reason.set(reason);
    }
}

#[no_mangle]
pub extern "C" fn still_error() -> *const c_char {
    own::find().map_or(c"".as_ptr(), |own| own.last.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        // SAFETY: a string, which nothing changes meanwhile.
        unsafe { CStr::from_ptr(still_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn words_stand_where_the_text_has_place_for_them() {
        static NAME: &str = "a table";
        say(Reason::fixed(c"nothing"));
        assert_eq!(said(), "nothing");
        say(Reason::fixed(c"{} has size {}: set it").with(&NAME).with(7_usize));
        assert_eq!(said(), "a table has size 7: set it");
        assert_eq!(said(), LastReason.to_string());
        say(Reason::fixed(c"a time of {} ns").with(-2_i64));
        assert_eq!(said(), "a time of -2 ns");
        say(Reason::fixed(c"{}").with(u64::MAX));
        assert_eq!(said(), u64::MAX.to_string());
    }

    #[test]
    fn long_texts_are_cut_off_at_a_character() {
        say(Reason::written(format_args!("{}é", "x".repeat(510)), c"no memory"));
        assert_eq!(said(), "x".repeat(510));
        say(Reason::written(format_args!("{}é!", "x".repeat(509)), c"no memory"));
        assert_eq!(said(), "x".repeat(509) + "é");
        assert_eq!(LastReason.to_string(), said());
    }
}
