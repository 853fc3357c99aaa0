//! What tells programs where the libraries are: files for `pkg-config` and CMake.

use std::path::Path;

use crate::tools::{make_folder, write};
use crate::{Options, VERSION};

/// The other libraries that static linking needs. Compilers add the one that unwinds: with `-static`, there is no `-lgcc_s`.
pub(crate) const PRIVATE: &str = "-lpthread -lm -ldl -lc";

pub(crate) fn write_files(options: &Options, lib: &Path, soname: &str) -> Result<(), String> {
    let (pkgconfig, cmake) = (lib.join("pkgconfig"), lib.join("cmake/stillpoint"));
    make_folder(&pkgconfig)?;
    make_folder(&cmake)?;
    write(&pkgconfig.join("stillpoint.pc"), pkg_config(options))?;
    write(&pkgconfig.join("stillpoint-dpdk.pc"), pkg_config_of_dpdk(options))?;
    write(&cmake.join("stillpoint-config.cmake"), cmake_config(options, soname))?;
    write(&cmake.join("stillpoint-config-version.cmake"), cmake_version())
}

fn pkg_config(Options { prefix, libdir, .. }: &Options) -> String {
    let (prefix, libdir) = (prefix.display(), libdir.display());
    format!(
        "\
prefix={prefix}
includedir=${{prefix}}/include
libdir=${{prefix}}/{libdir}

Name: stillpoint
Description: Read-copy-update that frees memory even while readers are preempted
Version: {VERSION}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lstillpoint
Libs.private: {PRIVATE}
"
    )
}

/// The folder of the headers comes before that of DPDK if a program names this package before `libdpdk`.
fn pkg_config_of_dpdk(Options { prefix, .. }: &Options) -> String {
    format!(
        "\
prefix={}
includedir=${{prefix}}/include

Name: stillpoint-dpdk
Description: DPDK's rte_rcu_qsbr.h and rte_timer.h, over stillpoint
Version: {VERSION}
Requires: stillpoint = {VERSION}
Cflags: -I${{includedir}}/stillpoint/dpdk
",
        prefix.display()
    )
}

fn cmake_config(Options { libdir, .. }: &Options, soname: &str) -> String {
    let up = "/..".repeat(libdir.components().count() + 2);
    let libdir = libdir.display();
    format!(
        "\
# The targets stillpoint::stillpoint (shared), stillpoint::static, and stillpoint::dpdk (the headers in place of DPDK's, shared).
get_filename_component(stillpoint_PREFIX \"${{CMAKE_CURRENT_LIST_DIR}}\" REALPATH)
get_filename_component(stillpoint_PREFIX \"${{stillpoint_PREFIX}}{up}\" ABSOLUTE)
if(NOT TARGET stillpoint::stillpoint)
    add_library(stillpoint::stillpoint SHARED IMPORTED)
    set_target_properties(stillpoint::stillpoint PROPERTIES
        IMPORTED_LOCATION \"${{stillpoint_PREFIX}}/{libdir}/libstillpoint.so\"
        IMPORTED_SONAME \"{soname}\"
        INTERFACE_INCLUDE_DIRECTORIES \"${{stillpoint_PREFIX}}/include\")
    add_library(stillpoint::static STATIC IMPORTED)
    set_target_properties(stillpoint::static PROPERTIES
        IMPORTED_LOCATION \"${{stillpoint_PREFIX}}/{libdir}/libstillpoint.a\"
        INTERFACE_INCLUDE_DIRECTORIES \"${{stillpoint_PREFIX}}/include\"
        INTERFACE_LINK_LIBRARIES \"pthread;m;dl;c\")
    add_library(stillpoint::dpdk INTERFACE IMPORTED)
    set_target_properties(stillpoint::dpdk PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES \"${{stillpoint_PREFIX}}/include/stillpoint/dpdk\"
        INTERFACE_LINK_LIBRARIES stillpoint::stillpoint)
endif()
"
    )
}

fn cmake_version() -> String {
    format!(
        "\
set(PACKAGE_VERSION \"{VERSION}\")
# Before 1.0, each minor version has another interface.
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_FIND_VERSION_MAJOR EQUAL {major} AND (PACKAGE_FIND_VERSION_MINOR EQUAL {minor} OR PACKAGE_FIND_VERSION_COUNT EQUAL 1))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
else()
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()
",
        major = env!("CARGO_PKG_VERSION_MAJOR"),
        minor = env!("CARGO_PKG_VERSION_MINOR"),
    )
}
