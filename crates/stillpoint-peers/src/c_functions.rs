//! Functions of C that exist several times, each time with another prefix of their names; and types of which only C knows the fields.

/// A table of functions, and a macro that fills it with those of a prefix.
///
/// `$prefixed!("stillpoint_urcu_qsbr_")` is a `$name` whose field `join` is the C function `stillpoint_urcu_qsbr_join`. The first argument
/// is a dollar sign, for the inner macro.
#[cfg(any(peer_urcu, peer_dpdk))]
macro_rules! c_functions {
    (
        $dollar:tt $(#[$about:meta])*
        $visibility:vis struct $name:ident by $prefixed:ident {
            $($function:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
        }
    ) => {
        $(#[$about])*
        $visibility struct $name {
            $($visibility $function: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        macro_rules! $prefixed {
            ($dollar prefix:literal) => {{
                unsafe extern "C" {
                    $(
                        #[link_name = concat!($dollar prefix, stringify!($function))]
                        fn $function($($argument: $type),*) $(-> $result)?;
                    )*
                }
                $name { $($function),* }
            }};
        }
    };
}
#[cfg(any(peer_urcu, peer_dpdk))]
pub(crate) use c_functions;

/// Types that Rust code has only pointers to.
macro_rules! opaque {
    ($($(#[$about:meta])* $visibility:vis struct $name:ident;)*) => {$(
        $(#[$about])*
        #[repr(C)]
        $visibility struct $name {
            opaque: [u8; 0],
        }
    )*};
}
pub(crate) use opaque;
