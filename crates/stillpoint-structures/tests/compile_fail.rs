//! Programs that must not compile. Each has a twin that does, which shows that the program is refused for the intended
//! reason, and not because of a slip.
//!
//! Both are one file. A line marked `#[cfg(not(test))]` is only in the program, one marked `#[cfg(test)]` only in its twin: this
//! test compiles the twins as a part of itself, and trybuild compiles the programs, for which `cfg(test)` does not hold. Most
//! programs have one mark, on the line that is refused.
//!
//! The programs use all of `stillpoint`, and `stillpoint-structures`. They are here because trybuild builds what the tests of the package
//! depend on, twice: for the tests of `stillpoint`, that is five times as much.
//!
//! The messages are those of the compiler that the project is developed with. After an update of the compiler, run
//! `TRYBUILD=overwrite cargo test -p stillpoint-structures --test compile_fail`, and read the difference.

#![cfg(not(any(stillpoint_loom, miri)))]

use std::collections::BTreeSet;
use std::path::Path;

/// The twins are part of this program: each one is compiled, and runs as a test.
macro_rules! twins {
    ($($name:ident)*) => {
        $(#[allow(dead_code, reason = "of some functions it only matters that they compile")]
        #[allow(clippy::needless_lifetimes, reason = "the compiler's message names them")]
        mod $name {
            include!(concat!("compile_fail/", stringify!($name), ".rs"));

            #[test]
            fn compiles_and_runs() {
                main();
            }
        })*

        const TWINS: &[&str] = &[$(stringify!($name)),*];
    };
}

twins! {
    anything_as_region
    array_contents_not_sync
    bound_array_beyond_reader
    bound_reader_used_elsewhere
    bound_reference_across_offline
    bound_reference_across_quiescent
    bound_reference_beyond_guard
    bound_two_guards_at_a_time
    bound_two_protected_at_a_time
    bound_while_protected
    change_a_protected_object
    change_a_retired_object
    change_a_table_that_is_read
    child_beyond_a_protected_parent
    child_beyond_its_retired_parent
    child_beyond_the_guard_of_its_parent
    child_under_a_guard_beyond_its_protected_parent
    clone_protected
    clone_reader
    contents_not_send
    contents_not_static
    contents_not_sync
    deferred_call_not_static
    dropped_after_borrow
    entry_across_await
    entry_beyond_a_handle
    entry_of_a_list_beyond_list
    entry_of_a_list_beyond_reader
    exchange_found_beyond_guard
    exclusive_access_while_loaded
    forge_static_through_a_block
    forge_static_through_a_bulk
    forge_static_through_a_cell
    forge_static_through_a_local
    forge_static_through_a_pool
    forge_static_through_a_table
    forge_static_through_an_array
    forge_static_through_an_object
    forge_static_through_the_makers_of_objects
    forge_static_through_the_objects_of_a_block
    guard_across_await
    guard_beyond_reader
    iterator_of_a_list_beyond_guard
    lengthen_a_loaded_reference
    lengthen_an_object
    lengthen_guard
    lengthen_invariant
    lengthen_protected
    object_beyond_its_pool
    protected_beyond_array
    protected_beyond_cell
    protected_beyond_reader
    qsbr_reader_protects
    reference_across_offline
    reference_across_quiescent
    reference_across_synchronize
    reference_beyond_array
    reference_beyond_cell
    reference_beyond_guard
    reference_beyond_inner_guard
    reference_beyond_protected
    reference_beyond_qsbr_reader
    reference_beyond_retired
    reference_of_a_temporary_guard
    reference_within_offline
    region_implemented_outside
    replaced_and_thrown_away
    replaced_in_an_array_and_thrown_away
    report_while_shared
    reset_after_fork_is_unsafe
    retired_after_retire
    send_entry_of_a_list
    send_guard
    send_local
    send_protected
    send_qsbr_reader
    send_reader
    shorten_invariant
    shorten_pool_handle
    take_out_while_protected
    value_of_a_list_beyond_entry
    value_of_a_list_beyond_guard
}

#[test]
fn each_program_has_a_twin() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let files =
        folder.read_dir().expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let programs: BTreeSet<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(programs, TWINS.iter().map(|&twin| twin.to_owned()).collect());
}

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
