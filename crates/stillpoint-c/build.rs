//! Compiles the C part: the thread-local variables that the headers' inline code reads, and functions that programs may define themselves.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=include/stillpoint/thread.h");
    println!("cargo::rerun-if-changed=include/stillpoint/urcu.h");
    println!("cargo::rerun-if-changed=include/stillpoint/liburcu/urcu/flavor.h");
    cc::Build::new()
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
