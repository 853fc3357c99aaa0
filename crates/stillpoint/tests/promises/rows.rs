//! The rows of the tables, and how they are checked.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;

/// Whether a concrete type has a trait, as an expression.
macro_rules! has {
    ($type:ty: $trait:path) => {{
        #[allow(dead_code, reason = "not of a type with the trait")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "never constructed")]
        struct Ask<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "not of a type without the trait")]
        impl<T: ?Sized + $trait> Ask<T> {
            // An inherent constant takes precedence over that of the trait.
            const HAS: bool = true;
        }
        <Ask<$type>>::HAS
    }};
}

/// The traits of a type, in the order of [`Traits`].
macro_rules! traits {
    ($type:ty) => {
        $crate::rows::Traits {
            send: has!($type: Send),
            sync: has!($type: Sync),
            unwind_safe: has!($type: std::panic::UnwindSafe),
            ref_unwind_safe: has!($type: std::panic::RefUnwindSafe),
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) send: bool,
    pub(crate) sync: bool,
    pub(crate) unwind_safe: bool,
    pub(crate) ref_unwind_safe: bool,
}

/// When a type with the parameter `T` has a trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Never,
    Send,
    Sync,
    SendAndSync,
    UnwindSafe,
    RefUnwindSafe,
}

impl When {
    /// Whether the type has the trait if its parameter has these traits.
    fn holds(self, parameter: Traits) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Send => parameter.send,
            Self::Sync => parameter.sync,
            Self::SendAndSync => parameter.send && parameter.sync,
            Self::UnwindSafe => parameter.unwind_safe,
            Self::RefUnwindSafe => parameter.ref_unwind_safe,
        }
    }
}

/// What may replace a longer lifetime, or a subtype, as the parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variance {
    /// A shorter lifetime, or a supertype: a function in the row does this.
    Covariant,
    /// A longer lifetime, or a subtype: a function in the row does this.
    Contravariant,
    /// Nothing: `compile_fail/shorten_invariant.rs` and `compile_fail/lengthen_invariant.rs` try it.
    Invariant,
}

/// What must be alive when a value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropCheck {
    /// What the parameter borrows from: `compile_fail/dropped_after_borrow.rs` tries to drop it first.
    Alive,
    /// Nothing: a function in the row drops the value later.
    MayDangle,
    /// The same as for the type's lifetime, which the parameter outlives.
    AsLifetime,
    /// The parameter has no borrows (`T: 'static`).
    Static,
}

/// One parameter of a type.
#[derive(Debug)]
pub(crate) struct Row {
    /// The type's name, with its module.
    pub(crate) name: &'static str,
    pub(crate) parameter: &'static str,
    pub(crate) variance: Variance,
    pub(crate) drop_check: DropCheck,
    pub(crate) expected: [When; 4],
    /// For each type that was tried as the parameter: its traits, and those of the type with it.
    pub(crate) found: Vec<(&'static str, Traits, Traits)>,
}

impl Row {
    /// The name of the functions in `compile_fail` that are about this row.
    pub(crate) fn function(&self) -> String {
        let name = format!("{}_{}", self.name.replace("::", "_"), self.parameter.trim_start_matches('\''));
        name.to_lowercase()
    }

    /// The differences between the row and the type.
    pub(crate) fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        for (of, parameter, whole) in &self.found {
            let expected = self.expected.map(|when| when.holds(*parameter));
            let found = [whole.send, whole.sync, whole.unwind_safe, whole.ref_unwind_safe];
            if found != expected {
                let row = format!("{} with {of} for {}", self.name, self.parameter);
                differences.push(format!("{row}: {found:?}, and not {expected:?}"));
            }
        }
        differences
    }
}

/// Has all four traits.
pub(crate) struct Plain;
/// Has all but `Send`.
pub(crate) struct NotSend(PhantomData<*const ()>);
/// Has all but `Sync`.
pub(crate) struct NotSync(PhantomData<Cell<()>>);
/// Has all but `UnwindSafe`.
pub(crate) type NotUnwindSafe = &'static mut Plain;
/// Has all but `RefUnwindSafe`.
pub(crate) struct NotRefUnwindSafe(UnsafeCell<()>);

// SAFETY: it holds nothing.
unsafe impl Sync for NotSend {}
impl std::panic::UnwindSafe for NotSend {}
impl std::panic::RefUnwindSafe for NotSend {}
impl std::panic::RefUnwindSafe for NotSync {}
// SAFETY: its field is never accessed.
unsafe impl Sync for NotRefUnwindSafe {}

#[test]
fn each_probe_lacks_one_trait() {
    let all = Traits { send: true, sync: true, unwind_safe: true, ref_unwind_safe: true };
    assert_eq!(traits!(Plain), all);
    assert_eq!(traits!(NotSend), Traits { send: false, ..all });
    assert_eq!(traits!(NotSync), Traits { sync: false, ..all });
    assert_eq!(traits!(NotUnwindSafe), Traits { unwind_safe: false, ..all });
    assert_eq!(traits!(NotRefUnwindSafe), Traits { ref_unwind_safe: false, ..all });
}

/// The types that are tried as a parameter, by its bounds: `any`, `send`, or `send_sync`.
macro_rules! found {
    (any, $of:ident) => {
        found!($of, Plain, NotSend, NotSync, NotUnwindSafe, NotRefUnwindSafe)
    };
    (send, $of:ident) => {
        found!($of, Plain, NotSync, NotUnwindSafe, NotRefUnwindSafe)
    };
    (send_sync, $of:ident) => {
        found!($of, Plain, NotUnwindSafe, NotRefUnwindSafe)
    };
    ($of:ident, $($probe:ident),*) => {
        vec![$((
            stringify!($probe),
            traits!($crate::rows::$probe),
            traits!($of<$crate::rows::$probe>),
        )),*]
    };
}

/// Functions that compile only if the parameter is covariant, or may dangle. Code that must not compile is in
/// `compile_fail`.
macro_rules! compiles {
    (type, Covariant, $of:ident) => {
        #[allow(dead_code, reason = "that it compiles is all")]
        fn covariant(of: $of<for<'any> fn(&'any ())>) -> $of<fn(&'static ())> {
            of
        }
    };
    (lifetime, Covariant, $of:ident) => {
        #[allow(dead_code, reason = "that it compiles is all")]
        fn covariant<'long: 'short, 'short>(of: $of<'long>) -> $of<'short> {
            of
        }
    };
    (type, Contravariant, $of:ident) => {
        #[allow(dead_code, reason = "that it compiles is all")]
        fn contravariant(of: $of<fn(&'static ())>) -> $of<for<'any> fn(&'any ())> {
            of
        }
    };
    (type, MayDangle, $of:ident) => {
        #[allow(dead_code, unused_assignments, reason = "that it compiles is all")]
        fn may_dangle(make: impl for<'any> Fn(&'any ()) -> $of<&'any ()>) {
            let _later;
            let first = ();
            _later = make(&first);
        }
    };
    (lifetime, MayDangle, $of:ident) => {
        #[allow(dead_code, unused_assignments, reason = "that it compiles is all")]
        fn may_dangle(make: impl for<'any> Fn(&'any ()) -> $of<'any>) {
            let _later;
            let first = ();
            _later = make(&first);
        }
    };
    ($kind:ident, Invariant, $of:ident) => {};
    ($kind:ident, Alive, $of:ident) => {};
    ($kind:ident, AsLifetime, $of:ident) => {};
    ($kind:ident, Static, $of:ident) => {};
}

/// Rows of the table: `name, parameter: bounds = type; variance, Send, Sync, UnwindSafe, RefUnwindSafe, drop check`.
macro_rules! rows {
    ($($name:literal, $parameter:literal: $bounds:ident = $type:ty;
       $variance:ident, $send:ident, $sync:ident, $unwind_safe:ident, $ref_unwind_safe:ident, $drop_check:ident;)*) => {
        vec![$(rows!(@ $bounds, $type, {
            $crate::rows::Row {
                name: $name,
                parameter: $parameter,
                variance: $crate::rows::Variance::$variance,
                drop_check: $crate::rows::DropCheck::$drop_check,
                expected: [
                    $crate::rows::When::$send,
                    $crate::rows::When::$sync,
                    $crate::rows::When::$unwind_safe,
                    $crate::rows::When::$ref_unwind_safe,
                ],
                found: Vec::new(),
            }
        }, $variance, $drop_check)),*]
    };
    (@ lifetime, $type:ty, $row:block, $variance:ident, $drop_check:ident) => {{
        type Of<'a> = $type;
        compiles!(lifetime, $variance, Of);
        compiles!(lifetime, $drop_check, Of);
        // Traits do not tell lifetimes apart.
        let found = vec![("lifetime", traits!($crate::rows::Plain), traits!(Of<'static>))];
        $crate::rows::Row { found, ..$row }
    }};
    (@ $bounds:ident, $type:ty, $row:block, $variance:ident, $drop_check:ident) => {{
        type Of<T> = $type;
        compiles!(type, $variance, Of);
        compiles!(type, $drop_check, Of);
        $crate::rows::Row { found: found!($bounds, Of), ..$row }
    }};
}
