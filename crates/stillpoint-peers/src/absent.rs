//! What stands in for a library that this build does not have: functions that fail, and types without values.

/// Functions with these arguments that fail with `$why`.
macro_rules! absent {
    ($why:literal: $($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(
            /// Fails: this build lacks the library.
            ///
            /// # Errors
            /// Always.
            pub fn $name($(_: $argument),*) -> Result<$result, String> {
                Err($why.to_owned())
            }
        )*
    };
}

/// A type that `new` fails to make, with these methods.
macro_rules! never {
    ($name:ident::new($($argument:ty),*) fails: $why:literal; $($method:ident($this:ty $(, $more:ty)*) -> $result:ty;)*) => {
        /// There is no value of this type.
        pub enum $name {}

        impl $name {
            absent!($why: new($($argument),*) -> Self;);

            $(
                /// Cannot be called: there is no value of this type.
                pub fn $method(self: $this, $(_: $more),*) -> $result {
                    match *self {}
                }
            )*
        }
    };
}

pub(crate) use absent;
pub(crate) use never;
