//! Finds the peers written in C and compiles this crate's C files through their headers.
//!
//! If a peer is missing, the crate builds without it, and `missing()` returns the reason. The variable `STILLPOINT_PEERS` limits the
//! build to the peers that it lists, as in `STILLPOINT_PEERS=liburcu,ck`; `none` leaves out all of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

struct Peer {
    name: &'static str,
    /// The name of the cfg that is set, without its prefix `peer_`.
    key: &'static str,
    modules: &'static [&'static str],
    sources: &'static [&'static str],
    /// Files that are compiled with `DROP_IN` defined and a folder of our headers in front of the peer's.
    drop_in: Option<(&'static str, &'static [&'static str])>,
    /// Only the libraries that the C files need. For DPDK, pkg-config lists a hundred libraries.
    libraries: &'static [&'static str],
    /// The further archives that a static program needs; `None` for a peer that static programs leave out.
    needed_when_static: Option<&'static [&'static str]>,
    /// Whether the compiler may find the headers even if pkg-config does not know the peer.
    header_suffices: bool,
}

/// Our own headers.
const HEADERS: &str = "../stillpoint-c/include";

const PEERS: [Peer; 4] = [
    // Our own C interface, whose library is the crate `stillpoint-c`.
    Peer {
        name: "stillpoint.h",
        key: "c",
        modules: &[],
        sources: &["c/stillpoint.c", "c/htimer.c"],
        drop_in: None,
        libraries: &[],
        needed_when_static: Some(&[]),
        header_suffices: true,
    },
    Peer {
        name: "liburcu",
        key: "urcu",
        modules: &["liburcu-qsbr", "liburcu-memb", "liburcu-mb", "liburcu-cds"],
        sources: &["c/urcu_qsbr.c", "c/urcu_memb.c", "c/urcu_mb.c", "c/urcu_linked.c"],
        drop_in: Some((
            "liburcu",
            &["c/urcu_qsbr.c", "c/urcu_memb.c", "c/urcu_mb_boosted.c", "c/urcu_linked.c"],
        )),
        libraries: &["urcu-cds", "urcu-qsbr", "urcu-memb", "urcu-mb"],
        needed_when_static: Some(&["urcu-common"]),
        header_suffices: false,
    },
    Peer {
        name: "dpdk",
        key: "dpdk",
        modules: &["libdpdk"],
        sources: &["c/dpdk.c", "c/rte_hash.c", "c/rte_mempool.c", "c/rte_timer.c", "c/transmit.c"],
        drop_in: Some(("dpdk", &["c/dpdk_drop_in.c", "c/rte_timer.c"])),
        libraries: &[
            "rte_ethdev",
            "rte_hash",
            "rte_mbuf",
            "rte_mempool",
            "rte_rcu",
            "rte_ring",
            "rte_timer",
            "rte_eal",
        ],
        // DPDK's drivers register themselves when a program starts. A static program would have to link its archives whole.
        needed_when_static: None,
        header_suffices: false,
    },
    Peer {
        name: "ck",
        key: "ck",
        modules: &["ck"],
        sources: &["c/ck.c"],
        drop_in: None,
        libraries: &["ck"],
        needed_when_static: Some(&[]),
        header_suffices: true,
    },
];

const RUST_PEERS: [&str; 14] = [
    "crossbeam-epoch",
    "crossbeam-queue",
    "crossbeam-skiplist",
    "seize",
    "haphazard",
    "papaya",
    "object-pool",
    "sharded-slab",
    "bustle",
    "dashmap",
    "scc",
    "nexus-timer",
    "tokio-util",
    "hierarchical_hash_wheel_timer",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(peer_c, peer_urcu, peer_dpdk, peer_ck)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed={HEADERS}");
    println!("cargo::rerun-if-changed=../stillpoint-c/dpdk");
    println!("cargo::rerun-if-env-changed=STILLPOINT_PEERS");
    watch_pkg_config_directories();

    let mut versions: Vec<String> = Vec::new();
    for peer in &PEERS {
        let why = match build(peer) {
            Ok(version) => {
                println!("cargo::rustc-cfg=peer_{}", peer.key);
                versions.push(format!("{} {version}", peer.name));
                String::new()
            }
            Err(why) => why,
        };
        println!("cargo::rustc-env=STILLPOINT_PEER_{}_WHY={why}", peer.key.to_uppercase());
    }

    let lock = read_cargo_lock().unwrap_or_default();
    versions.extend(
        RUST_PEERS
            .map(|package| format!("{package} {}", locked_version(&lock, package).unwrap_or("unknown"))),
    );
    println!("cargo::rustc-env=STILLPOINT_PEER_VERSIONS={}", versions.join("|"));
}

/// Compiles and links one peer. Returns its version, or why it is left out.
fn build(peer: &Peer) -> Result<String, String> {
    if let Ok(chosen) = env::var("STILLPOINT_PEERS")
        && !chosen.split(',').any(|name| name.trim() == peer.name)
    {
        return Err("STILLPOINT_PEERS leaves it out".to_owned());
    }

    let archives = match (links_statically(), peer.needed_when_static) {
        (true, None) => return Err("static programs leave it out".to_owned()),
        (true, needed) => needed,
        (false, _) => None,
    };

    let mut includes: Vec<PathBuf> = Vec::new();
    let mut link_paths: Vec<PathBuf> = Vec::new();
    // Our own interface has the version of this crate.
    let mut version = if peer.modules.is_empty() { env!("CARGO_PKG_VERSION") } else { "unknown" }.to_owned();
    for module in peer.modules {
        match pkg_config::Config::new().cargo_metadata(false).probe(module) {
            Ok(library) => {
                includes.extend(library.include_paths);
                link_paths.extend(library.link_paths);
                version = library.version;
            }
            Err(_) if peer.header_suffices => {}
            Err(error) => return Err(reason(module, &error)),
        }
    }

    let is_native = env::var("HOST") == env::var("TARGET") && archives.is_none();
    let compiled = compile(peer.key, peer.sources, &[], &includes, is_native).and_then(|()| {
        let Some((folder, sources)) = peer.drop_in else { return Ok(()) };
        let key = format!("{}_drop_in", peer.key);
        compile(&key, sources, &[Path::new(HEADERS).join("stillpoint").join(folder)], &includes, is_native)
    });
    if let Err(error) = compiled {
        if !includes.is_empty() {
            println!("cargo::warning={} is installed, but left out of the benchmarks: {error}", peer.name);
        }
        return Err("its headers are missing or did not compile".to_owned());
    }

    for path in &link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    let kind = if archives.is_some() { "static" } else { "dylib" };
    for library in peer.libraries.iter().chain(archives.into_iter().flatten()) {
        println!("cargo::rustc-link-lib={kind}={library}");
    }
    Ok(version)
}

/// Compiles some files. The compiler searches the folders in `in_front` before the peer's; a drop-in's headers are there.
fn compile(
    key: &str,
    sources: &[&str],
    in_front: &[PathBuf],
    includes: &[PathBuf],
    is_native: bool,
) -> Result<(), String> {
    let mut compiler = cc::Build::new();
    compiler
        .files(sources)
        .opt_level(3)
        // The objects are linked only into executables, whose thread-local variables have this model.
        .flag_if_supported("-ftls-model=initial-exec")
        .cargo_warnings(false);
    // A static program may run on another processor, such as an emulated machine's.
    if is_native {
        compiler.flag_if_supported("-march=native");
    }
    if !in_front.is_empty() {
        compiler.define("DROP_IN", None);
    }
    for include in in_front.iter().chain([&PathBuf::from(HEADERS)]).chain(includes) {
        // System headers: warnings in them are not ours.
        compiler.flag("-isystem").flag(include);
    }
    compiler.try_compile(&format!("stillpoint_peer_{key}")).map_err(|error| {
        let error = error.to_string();
        error.lines().next().unwrap_or("unknown error").to_owned()
    })
}

/// Whether the program is built with `-C target-feature=+crt-static`, or for a target where that is the default.
fn links_statically() -> bool {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    features.split(',').any(|feature| feature == "crt-static")
}

fn reason(module: &str, error: &pkg_config::Error) -> String {
    match error {
        pkg_config::Error::Command { .. } => "pkg-config is not installed".to_owned(),
        pkg_config::Error::CrossCompilation => {
            "cross-compiling: set PKG_CONFIG_ALLOW_CROSS=1 and point PKG_CONFIG_LIBDIR at the target"
                .to_owned()
        }
        pkg_config::Error::EnvNoPkgConfig(variable) => format!("{variable} is set"),
        _ => format!("pkg-config does not know {module}"),
    }
}

/// Watches the directories to which a package that is installed later adds a file. Only paths that exist are named: for others, cargo
/// would run this script at every build.
fn watch_pkg_config_directories() {
    let mut directories: Vec<PathBuf> = Vec::new();
    for variable in ["PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
        directories.extend(env::var_os(variable).iter().flat_map(env::split_paths));
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    let pkg_config = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let default_path = Command::new(pkg_config).args(["--variable", "pc_path", "pkg-config"]).output();
    match default_path {
        Ok(output) if output.status.success() => {
            directories.extend(env::split_paths(String::from_utf8_lossy(&output.stdout).trim()));
        }
        _ => {
            let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
            directories.push("/usr/share/pkgconfig".into());
            directories.push("/usr/lib/pkgconfig".into());
            directories.push(format!("/usr/lib/{arch}-linux-gnu/pkgconfig").into());
        }
    }
    for directory in directories.iter().filter(|directory| directory.is_dir()) {
        println!("cargo::rerun-if-changed={}", directory.display());
    }
}

fn read_cargo_lock() -> Option<String> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let lock =
        manifest.ancestors().map(|directory| directory.join("Cargo.lock")).find(|path| path.is_file())?;
    println!("cargo::rerun-if-changed={}", Path::new(&lock).display());
    fs::read_to_string(lock).ok()
}

/// The version that follows the name of the package.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
