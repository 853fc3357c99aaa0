//! Besides its methods, each type promises what the original's type does: whether it may be sent and shared, whether it
//! may be used after a panic, and which traits it has.

// Miri reports errors in the original.
#![cfg(not(miri))]

use std::cell::Cell;
use std::fmt::{Debug, Pointer as FmtPointer};
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;

/// Whether a type has a trait, as an expression.
macro_rules! has {
    ($type:ty: $($trait:tt)+) => {{
        #[allow(dead_code, reason = "unused for a type with the trait")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "never constructed")]
        struct Ask<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "unused for a type without the trait")]
        impl<T: ?Sized + $($trait)+> Ask<T> {
            // An inherent constant takes precedence over that of the trait.
            const HAS: bool = true;
        }
        <Ask<$type>>::HAS
    }};
}

macro_rules! traits {
    ($type:ty) => {
        [
            ("Send", has!($type: Send)),
            ("Sync", has!($type: Sync)),
            ("Unpin", has!($type: Unpin)),
            ("UnwindSafe", has!($type: UnwindSafe)),
            ("RefUnwindSafe", has!($type: RefUnwindSafe)),
            ("Clone", has!($type: Clone)),
            ("Copy", has!($type: Copy)),
            ("Default", has!($type: Default)),
            ("Debug", has!($type: Debug)),
            ("Pointer", has!($type: FmtPointer)),
            ("PartialEq", has!($type: PartialEq)),
            ("Eq", has!($type: Eq)),
            ("PartialOrd", has!($type: PartialOrd)),
            ("Ord", has!($type: Ord)),
            ("Hash", has!($type: std::hash::Hash)),
        ]
    };
}

/// Compares the traits of types here and in the original.
macro_rules! compare {
    ($($type:ident [$($argument:tt)*];)*) => {{
        let mut rows = Vec::new();
        $(
            let ours = traits!(stillpoint_epoch::$type<$($argument)*>);
            let theirs = traits!(crossbeam_epoch::$type<$($argument)*>);
            rows.push((stringify!($type<$($argument)*>), ours, theirs));
        )*
        rows
    }};
}

type Shareable = u64;
type Sendable = Cell<u64>;
type Local = Rc<u64>;
type NotUnwindSafe<'a> = &'a mut u64;

#[test]
fn each_type_has_the_traits_of_the_original() {
    let rows = compare! {
        Collector [];
        LocalHandle [];
        Guard [];
        Atomic [Shareable];
        Atomic [Sendable];
        Atomic [Local];
        Atomic [NotUnwindSafe<'static>];
        Atomic [[MaybeUninit<Shareable>]];
        Atomic [[MaybeUninit<Sendable>]];
        Owned [Shareable];
        Owned [Sendable];
        Owned [Local];
        Owned [NotUnwindSafe<'static>];
        Owned [[MaybeUninit<Shareable>]];
        Owned [[MaybeUninit<Local>]];
        Shared ['static, Shareable];
        Shared ['static, Sendable];
        Shared ['static, Local];
        Shared ['static, NotUnwindSafe<'static>];
        Shared ['static, [MaybeUninit<Shareable>]];
    };
    assert_eq!(rows.len(), 20);
    for (name, ours, theirs) in rows {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn the_error_has_the_traits_of_the_original() {
    macro_rules! error {
        ($of:ident, $type:ty) => {
            traits!($of::CompareExchangeError<'static, $type, $of::Owned<$type>>)
        };
    }
    assert_eq!(error!(stillpoint_epoch, Shareable), error!(crossbeam_epoch, Shareable));
    assert_eq!(error!(stillpoint_epoch, Local), error!(crossbeam_epoch, Local));
    type Slice = [MaybeUninit<u64>];
    assert_eq!(error!(stillpoint_epoch, Slice), error!(crossbeam_epoch, Slice));
}

/// The macro tells types with a trait from those without it.
#[test]
fn traits_are_told_apart() {
    assert!(has!(stillpoint_epoch::Collector: Send) && !has!(stillpoint_epoch::Guard: Send));
    assert!(has!(Rc<u64>: Clone) && !has!(Rc<u64>: Sync));
}

/// Lifetimes may be shortened where the original allows it. That this compiles is the test.
#[test]
fn variance_is_that_of_the_original() {
    fn shared<'short, 'long: 'short>(
        shared: stillpoint_epoch::Shared<'long, &'long u64>,
    ) -> stillpoint_epoch::Shared<'short, &'short u64> {
        shared
    }
    fn owned<'short, 'long: 'short>(
        owned: stillpoint_epoch::Owned<&'long u64>,
    ) -> stillpoint_epoch::Owned<&'short u64> {
        owned
    }
    assert!(shared(stillpoint_epoch::Shared::null()).is_null());
    assert_eq!(**owned(stillpoint_epoch::Owned::new(&7)), 7);
}

/// Links, pointers, guards and handles have the sizes of the original's.
#[test]
fn pointers_are_words() {
    assert_eq!(size_of::<stillpoint_epoch::Shared<'_, u64>>(), size_of::<crossbeam_epoch::Shared<'_, u64>>());
    assert_eq!(size_of::<stillpoint_epoch::Owned<u64>>(), size_of::<crossbeam_epoch::Owned<u64>>());
    assert_eq!(size_of::<stillpoint_epoch::Atomic<u64>>(), size_of::<crossbeam_epoch::Atomic<u64>>());
    assert_eq!(size_of::<stillpoint_epoch::Guard>(), size_of::<crossbeam_epoch::Guard>());
    assert_eq!(size_of::<stillpoint_epoch::LocalHandle>(), size_of::<crossbeam_epoch::LocalHandle>());
}

/// The debug output is that of the original.
#[test]
fn debug_and_pointer_are_those_of_the_original() {
    let (ours, theirs) = (stillpoint_epoch::Collector::new(), crossbeam_epoch::Collector::new());
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    let (ours, theirs) = (ours.register(), theirs.register());
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(format!("{:20?}|", ours.pin()), format!("{:20?}|", theirs.pin()));
    let number = 7_u64;
    let (ours, theirs) = (
        stillpoint_epoch::Shared::from(&raw const number).with_tag(3),
        crossbeam_epoch::Shared::from(&raw const number).with_tag(3),
    );
    assert_eq!(format!("{ours:?} {ours:p}"), format!("{theirs:?} {theirs:p}"));
    let (ours, theirs) =
        (stillpoint_epoch::Atomic::<u64>::from(ours), crossbeam_epoch::Atomic::<u64>::from(theirs));
    assert_eq!(format!("{ours:?} {ours:p}"), format!("{theirs:?} {theirs:p}"));
    let (ours, theirs) = (
        stillpoint_epoch::Atomic::<[MaybeUninit<u64>]>::null(),
        crossbeam_epoch::Atomic::<[MaybeUninit<u64>]>::null(),
    );
    assert_eq!(format!("{ours:?} {ours:p}"), format!("{theirs:?} {theirs:p}"));
}

#[test]
fn each_public_type_is_in_the_glossary() {
    let (_, text) = include_str!("../../../docs/design/glossary.md")
        .split_once("\n## epoch\n")
        .expect("the glossary has a section `epoch`");
    let section = text.split("\n## ").next().expect("a split has a first part");
    let exports = include_str!("../src/lib.rs").lines().filter(|line| line.starts_with("pub use "));
    let words = exports.flat_map(|line| line.split(|character: char| !character.is_alphanumeric()));
    let types: Vec<&str> = words.filter(|word| word.starts_with(char::is_uppercase)).collect();
    assert_eq!(types.len(), 11, "{types:?}");
    for name in types {
        assert!(section.contains(&format!("`{name}`")), "`{name}` has no row in the glossary");
    }
}
