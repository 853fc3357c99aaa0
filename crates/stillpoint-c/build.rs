//! Compiles the C part: the thread-local variables that the headers' inline code reads, and functions that programs may define themselves.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=include/stillpoint/thread.h");
    println!("cargo::rerun-if-changed=include/stillpoint/urcu.h");
    println!("cargo::rerun-if-changed=include/stillpoint/liburcu/urcu/flavor.h");
    let mut build = cc::Build::new();
    // Nothing in the library depends on where it was built. The compiler may know the folder by another path.
    let here = std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this"));
    for folder in [here.canonicalize().expect("it is there"), here] {
        let name = concat!("/stillpoint-", env!("CARGO_PKG_VERSION"), "/crates/stillpoint-c");
        build.flag_if_supported(format!("-ffile-prefix-map={}={name}", folder.display()));
    }
    // rustc's archives have no index of objects that are for the linker's own optimisation.
    build.flag_if_supported("-fno-lto");
    build
        .file("src/urcu/shim.c")
        .include("include")
        .include("include/stillpoint/liburcu")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        // Optimised in every profile, because these are hot paths.
        .opt_level(2)
        .force_frame_pointer(false)
        .flag("-ftls-model=initial-exec")
        .compile("stillpoint_urcu");
}
