//! Which types may go to another thread, and which are regions that protect references.

use stillpoint::rcu::bound::{ArrayGuard, BoundArray};
use stillpoint::rcu::wait::Token;
use stillpoint::rcu::{
    BackgroundReclaimer, Domain, Guard, Protected, QsbrReader, RcuArray, RcuCell, Reader, Reclaimer, Region,
    RetireHandle, Retired,
};

/// Compiles only for types that do **not** implement the trait: for others, the call is ambiguous.
macro_rules! assert_not {
    ($bound:ident: $($type:ty),*) => {$({
        trait Ambiguous<Which> {
            fn one() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $bound> Ambiguous<u8> for T {}
        <$type as Ambiguous<_>>::one();
    })*};
}

#[test]
fn readers_and_what_they_hold_stay_on_their_thread() {
    assert_not!(Send: Reader, QsbrReader, Guard<'static>, Protected<'static, u32>);
    assert_not!(Sync: Reader, QsbrReader, Guard<'static>, Protected<'static, u32>);
    assert_not!(Send: BoundArray<'static, u32>, ArrayGuard<'static, u32>, BoundArray<'static, u32, QsbrReader>);
    assert_not!(Sync: BoundArray<'static, u32>, ArrayGuard<'static, u32>, BoundArray<'static, u32, QsbrReader>);
}

/// A reader itself is no region, but its guards are.
#[test]
fn only_regions_vouch_for_references() {
    assert_not!(Region: Reader, Domain, Protected<'static, u32>, BoundArray<'static, u32>, ());
}

#[test]
fn handles_and_containers_go_anywhere() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Domain>();
    shared::<Token>();
    shared::<RcuCell<u32>>();
    shared::<RcuArray<u32>>();
    shared::<Retired<u32>>();
    shared::<RetireHandle>();
    sent::<Reclaimer>();
    sent::<BackgroundReclaimer>();
}
