//! What errors have that hand a value back.

/// For an enum all of whose variants have the value: `into_inner`, `Debug`, and `Display` with a common beginning and the text of the
/// variant.
macro_rules! hands_back {
    ($name:ident: $beginning:literal, $($variant:ident: $text:literal,)+) => {
        impl<T> $name<T> {
            /// The value that was not used.
            pub fn into_inner(self) -> T {
                let ($(Self::$variant(value))|+) = self;
                value
            }
        }

        impl<T> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl<T> std::fmt::Display for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant(_) => concat!($beginning, $text)),+ })
            }
        }

        impl<T> std::error::Error for $name<T> {}
    };
}
pub(super) use hands_back;
