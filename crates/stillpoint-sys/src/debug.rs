//! `Debug` of types whose parts are not all shown.

/// Implements `Debug`: `debug!([T: Send] |this| Name<'_, T> { field: this.value(), .. });` prints `Name { field: value, .. }`.
///
/// The type's parameters, with their bounds, and `|this|` may be left out. The dots may not: they say that the type has more than is
/// printed. A type that prints all that it has derives `Debug`, or implements it by hand.
#[macro_export]
macro_rules! debug {
    (
        $([$($parameters:tt)*])? $(|$this:ident|)?
        $name:ident $(<$($argument:tt),+>)? { $($field:ident: $value:expr,)* .. }
    ) => {
        impl $(<$($parameters)*>)? ::core::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish_non_exhaustive()
            }
        }
    };
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    struct Bare;
    struct Shown<'s, T: ?Sized>(&'s T, u8);

    crate::debug!(Bare { .. });
    crate::debug!([T: ?Sized + AsRef<str>] |this| Shown<'_, T> { text: this.0.as_ref(), number: this.1, .. });

    #[test]
    fn the_dots_are_printed() {
        assert_eq!(format!("{:?}", Bare), "Bare { .. }");
        let shown = Shown("a", 1);
        assert_eq!(format!("{shown:?}"), r#"Shown { text: "a", number: 1, .. }"#);
        assert_eq!(format!("{shown:#?}"), "Shown {\n    text: \"a\",\n    number: 1,\n    ..\n}");
    }
}
