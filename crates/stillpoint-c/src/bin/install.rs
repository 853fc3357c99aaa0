//! Builds the libraries, and installs them with the headers, a `pkg-config` file and a CMake package.
//!
//! The shared library is linked from the static one: see `docs/design/capi.md`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
Build and install stillpoint for C: headers, libraries, a pkg-config file, a CMake package

Usage: install [--prefix DIR] [--destdir DIR] [--libdir DIR] [--profile NAME] [--dpdk]

  --prefix DIR    Where programs will find it [default: /usr/local]
  --destdir DIR   Prefix of every path that is written, for packages
  --libdir DIR    Where to install the libraries, below the prefix [default: lib]
  --profile NAME  Cargo's profile to build with [default: release]
  --dpdk          Also install the driver of DPDK's rte_mempool, for the DPDK that is installed

$CC links the shared library and compiles the driver, or cc if $CC is not set.";

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The other libraries that static linking needs. Compilers add the one that unwinds: with `-static`, there is no `-lgcc_s`.
const PRIVATE: &str = "-lpthread -lm -ldl -lc";

struct Options {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    libdir: PathBuf,
    profile: OsString,
    dpdk: bool,
}

fn main() -> ExitCode {
    let answer = match parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => {
            install(&options).map(|(root, dpdk)| print!("{}", summary(&options, &root, dpdk.as_ref())))
        }
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(format!("{error}\n\n{USAGE}")),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `None` if the arguments ask for help.
fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, String> {
    let mut options = Options {
        prefix: "/usr/local".into(),
        destdir: None,
        libdir: "lib".into(),
        profile: "release".into(),
        dpdk: false,
    };
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match &*name {
            "-h" | "--help" => return Ok(None),
            "--prefix" => options.prefix = value()?.into(),
            "--destdir" => options.destdir = Some(value()?.into()),
            "--libdir" => options.libdir = value()?.into(),
            "--profile" => options.profile = value()?,
            "--dpdk" => options.dpdk = true,
            _ => return Err(format!("there is no option {name}")),
        }
    }
    match options.prefix.is_absolute() {
        true => Ok(Some(options)),
        false => Err(format!("--prefix {} is not an absolute path", options.prefix.display())),
    }
}

/// Returns the folder that programs will find as the prefix, and the DPDK for which the driver was compiled.
fn install(options: &Options) -> Result<(PathBuf, Option<Dpdk>), String> {
    let root = options.destdir.as_deref().map_or_else(
        || options.prefix.clone(),
        |destdir| destdir.join(options.prefix.strip_prefix("/").unwrap_or(&options.prefix)),
    );
    let (include, lib) = (root.join("include"), root.join(&options.libdir));
    let (pkgconfig, cmake) = (lib.join("pkgconfig"), lib.join("cmake/stillpoint"));
    let dpdk = options.dpdk.then(Dpdk::installed).transpose()?;
    for folder in [&pkgconfig, &cmake] {
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = build(source, &options.profile)?;
    copy_folder(&source.join("include"), &include)?;
    copy(&built, &lib.join("libstillpoint.a"))?;

    // Before 1.0, each minor version has another interface.
    let soname = match VERSION.split_once('.') {
        Some(("0", rest)) => format!("libstillpoint.so.0.{}", rest.split('.').next().unwrap_or_default()),
        _ => format!("libstillpoint.so.{}", VERSION.split('.').next().unwrap_or_default()),
    };
    let shared = format!("libstillpoint.so.{VERSION}");
    link(&built, &lib.join(&shared), &soname)?;
    for (link, target) in [(&*soname, &*shared), ("libstillpoint.so", &*soname)] {
        let link = lib.join(link);
        // It may be there from an earlier installation.
        let _ = fs::remove_file(&link);
        symlink(target, &link).map_err(|error| failed(&link, &error))?;
    }
    write(&pkgconfig.join("stillpoint.pc"), &pkg_config(options))?;
    write(&pkgconfig.join("stillpoint-dpdk.pc"), &pkg_config_of_dpdk(options))?;
    // In a separate folder. If that folder is in PKG_CONFIG_PATH, these files are found instead of liburcu's.
    let liburcu = lib.join("stillpoint/liburcu/pkgconfig");
    fs::create_dir_all(&liburcu).map_err(|error| failed(&liburcu, &error))?;
    let installed = Liburcu::installed();
    for (name, _) in Liburcu::NAMES {
        write(&liburcu.join(name).with_extension("pc"), &pkg_config_of_liburcu(options, name, &installed))?;
    }
    Liburcu::compile_names(source, &lib)?;
    write(&cmake.join("stillpoint-config.cmake"), &cmake_config(options, &soname))?;
    write(&cmake.join("stillpoint-config-version.cmake"), &cmake_version())?;
    dpdk.as_ref().map(|dpdk| dpdk.compile_driver(source, &include, &lib)).transpose()?;
    Ok((root, dpdk))
}

/// What was installed where, and how a program is compiled with it.
fn summary(options: &Options, root: &Path, dpdk: Option<&Dpdk>) -> String {
    let lib = options.libdir.display();
    let mut text = format!(
        "\
Installed stillpoint {VERSION} in {}:
  include/stillpoint.h include/stillpoint
  {lib}/libstillpoint.so {lib}/libstillpoint.a
  {lib}/pkgconfig/stillpoint.pc {lib}/cmake/stillpoint
  in place of DPDK: {lib}/pkgconfig/stillpoint-dpdk.pc
  in place of liburcu: {lib}/stillpoint/liburcu/pkgconfig
  for programs that were compiled against liburcu, by LD_LIBRARY_PATH: {lib}/stillpoint/liburcu
",
        root.display()
    );
    if let Some(dpdk) = dpdk {
        text += &dpdk.summary(&options.prefix.join(&options.libdir));
    }
    if options.destdir.is_none() {
        let lib = options.prefix.join(&options.libdir);
        let in_pkg_config =
            names("pkg-config", &["--variable=pc_path", "pkg-config"], &lib.join("pkgconfig"));
        let in_linker = names("/sbin/ldconfig", &["-N", "-X", "-v"], &lib);
        text += &next_steps(&lib, in_pkg_config, in_linker);
    }
    text
}

fn next_steps(lib: &Path, in_pkg_config: bool, in_linker: bool) -> String {
    let lib = lib.display();
    let path = match in_pkg_config {
        true => String::new(),
        false => format!("    export PKG_CONFIG_PATH={lib}/pkgconfig\n"),
    };
    let (cache, rpath) = match in_linker {
        true => ("    ldconfig    # once, as root\n", String::new()),
        false => ("", format!(" -Wl,-rpath,{lib}")),
    };
    format!(
        "Compile a program with:\n{cache}{path}    \
         cc program.c $(pkg-config --cflags --libs stillpoint){rpath} -pthread\n"
    )
}

/// Whether a program names the folder among those that it prints.
fn names(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let Ok(output) = Command::new(program).args(arguments).output() else { return false };
    let printed = String::from_utf8_lossy(&output.stdout);
    // Both are resolved: `/lib` and `/usr/lib` are often the same.
    let folder = fs::canonicalize(folder).ok();
    let is_folder = |path: &str| folder.is_some() && fs::canonicalize(path).ok() == folder;
    printed.split([':', '\n']).filter(|path| path.starts_with('/')).any(is_folder)
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| failed(to, &error))
}

/// Copies a folder and everything below it.
fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| failed(to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let from = entry.map_err(|error| failed(from, &error))?.path();
        let to = to.join(from.file_name().expect("an entry of a folder has a name"));
        match from.is_dir() {
            true => copy_folder(&from, &to)?,
            false => copy(&from, &to)?,
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| failed(path, &error))
}

/// Builds the static library with cargo, and returns its path.
fn build(source: &Path, profile: &OsString) -> Result<PathBuf, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--package",
            "stillpoint-c",
            "--lib",
            "--message-format",
            "json-render-diagnostics",
            "--profile",
        ])
        .arg(profile)
        .current_dir(source)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err("cargo could not build the library".to_owned());
    }
    // Cargo's messages are lines of JSON, in which all paths are quoted.
    let messages = String::from_utf8_lossy(&output.stdout);
    let is_library = |path: &Path| {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libstillpoint_c") && path.extension().is_some_and(|extension| extension == "a")
    };
    let mut paths = messages.split('"').map(PathBuf::from);
    paths.find(|path| is_library(path)).ok_or_else(|| "cargo did not name a static library".to_owned())
}

/// Links the shared library. It exports the functions of the headers, with a version, and nothing else.
fn link(library: &Path, to: &Path, soname: &str) -> Result<(), String> {
    let map = to.with_extension("map");
    let release = VERSION.rsplit_once('.').map_or(VERSION, |(release, _)| release);
    write(&map, &format!("STILLPOINT_{release} {{ global: still_*; local: *; }};\n"))?;
    let mut command = compiler();
    let compiler = command.get_program().to_owned();
    command.args(["-shared", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,-z,relro,-z,now"]);
    command.arg(format!("-Wl,-soname,{soname}"));
    let mut script = OsString::from("-Wl,--version-script=");
    script.push(&map);
    command
        .arg(script)
        .arg("-o")
        .arg(to)
        .arg("-Wl,--whole-archive")
        .arg(library)
        .arg("-Wl,--no-whole-archive");
    let status = command.args(PRIVATE.split(' ')).status();
    let _ = fs::remove_file(&map);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("{} could not link the shared library: {status}", compiler.to_string_lossy()))
        }
        Err(error) => Err(format!(
            "{}, which links the shared library, could not be run: {error}",
            compiler.to_string_lossy()
        )),
    }
}

/// What is installed of DPDK.
struct Dpdk {
    flags: String,
    /// The version of the interface of its shared libraries, by which it names the folder of drivers.
    abi: String,
    /// The folder of its shared libraries.
    lib: PathBuf,
}

impl Dpdk {
    const DRIVER: &str = "librte_mempool_stillpoint.so";

    fn installed() -> Result<Self, String> {
        let missing = || "--dpdk: DPDK is not there: install libdpdk-dev".to_owned();
        let flags = said(Command::new("pkg-config").args(["--cflags", "libdpdk"])).ok_or_else(missing)?;
        let lib =
            said(Command::new("pkg-config").args(["--variable=libdir", "libdpdk"])).ok_or_else(missing)?;
        // This is a link to `librte_eal.so.23.0`.
        let eal = fs::canonicalize(Path::new(&lib).join("librte_eal.so")).ok();
        let found = eal.as_deref().and_then(|eal| {
            let (_, abi) = eal.file_name()?.to_str()?.split_once(".so.")?;
            Some((abi.to_owned(), eal.parent()?.to_owned()))
        });
        let (abi, lib) = found.ok_or(
            "--dpdk: DPDK has no shared libraries here; programs that link it statically compile crates/stillpoint-c/dpdk/mempool.c themselves",
        )?;
        Ok(Self { flags, abi, lib })
    }

    /// In the folder in which DPDK looks for drivers if it has the same prefix. It loads all that is there, so nothing else is.
    fn folder(&self, lib: &Path) -> PathBuf {
        lib.join("dpdk").join(format!("pmds-{}", self.abi))
    }

    fn compile_driver(&self, source: &Path, include: &Path, lib: &Path) -> Result<(), String> {
        let folder = self.folder(lib);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let mut command = compiler();
        command.args(["-std=gnu11", "-O2", "-fPIC", "-shared"]).args(self.flags.split_whitespace());
        command
            .arg("-I")
            .arg(include)
            .arg(source.join("dpdk/mempool.c"))
            .arg("-o")
            .arg(folder.join(Self::DRIVER));
        command.arg("-L").arg(lib).arg("-lstillpoint");
        command.arg("-L").arg(&self.lib).args(["-lrte_mempool", "-lrte_eal"]);
        command.args(["-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,-rpath,$ORIGIN/../.."]);
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the driver of rte_mempool could not be compiled: {status}")),
            Err(error) => Err(format!("{}: {error}", command.get_program().to_string_lossy())),
        }
    }

    fn summary(&self, lib: &Path) -> String {
        let folder = self.folder(lib);
        let loads = match fs::canonicalize(&folder).ok() == fs::canonicalize(self.folder(&self.lib)).ok() {
            true => "programs of DPDK load it by themselves".to_owned(),
            false => format!("for programs with -d {}", folder.join(Self::DRIVER).display()),
        };
        format!("  the driver \"stillpoint\" of rte_mempool: {loads}\n")
    }
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// The output of a command that succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
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

/// What is installed of liburcu itself, whose containers and atomics programs go on using.
struct Liburcu {
    version: Option<String>,
    /// Whether the linker finds its common library, in which the functions of queues and stacks are.
    has_common: bool,
}

impl Liburcu {
    /// Polling came with this version of liburcu's interface, and the drop-in has it beside each older one.
    const POLLING: &str = "0.14.0";
    /// Of a flavour's table of functions, those for polling included.
    const TABLE_BYTES: u64 = 16 * 8;
    /// Its libraries, and the flavour of each.
    const NAMES: [(&str, &str); 5] = [
        ("liburcu", "memb"),
        ("liburcu-memb", "memb"),
        ("liburcu-mb", "mb"),
        ("liburcu-qsbr", "qsbr"),
        ("liburcu-bp", "bp"),
    ];

    fn installed() -> Self {
        let mut pkg_config = Command::new("pkg-config");
        // This variable may name an installation of the drop-in.
        pkg_config.args(["--modversion", "liburcu"]).env_remove("PKG_CONFIG_PATH");
        let mut compiler = compiler();
        compiler.arg("-print-file-name=liburcu-common.so");
        // The compiler prints a name without a folder if it finds no such file.
        let has_common = said(&mut compiler).is_some_and(|path| path.contains('/'));
        Self { version: said(&mut pkg_config), has_common }
    }

    /// The size of a flavour's table of functions in the installed library, or, without that, in the latest version.
    fn table_bytes(library: &str, flavour: &str) -> u64 {
        let mut compiler = compiler();
        compiler.arg(format!("-print-file-name={library}.so.8"));
        let symbols = said(&mut compiler)
            .and_then(|path| said(Command::new("nm").args(["--dynamic", "--print-size"]).arg(path)))
            .unwrap_or_default();
        let of_table = |line: &str| {
            let mut words = line.split_whitespace();
            let (_, bytes, _, name) = (words.next()?, words.next()?, words.next()?, words.next()?);
            let is_it = name.split('@').next() == Some(&format!("urcu_{flavour}_flavor"));
            u64::from_str_radix(bytes, 16).ok().filter(|_| is_it)
        };
        symbols
            .lines()
            .find_map(of_table)
            .filter(|bytes| (1..=Self::TABLE_BYTES).contains(bytes))
            .unwrap_or(Self::TABLE_BYTES)
    }

    /// Compiles the libraries under liburcu's names.
    fn compile_names(source: &Path, lib: &Path) -> Result<(), String> {
        let folder = lib.join("stillpoint/liburcu");
        for (name, flavour) in Self::NAMES {
            let soname = format!("{name}.so.8");
            let mut command = compiler();
            command.args(["-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-shared"]);
            command.arg(format!("-DSTILL_FLAVOUR={flavour}"));
            command.arg(format!("-DSTILL_FLAVOUR_IS_{}", flavour.to_uppercase()));
            let bytes = Self::table_bytes(name, flavour);
            command.arg(format!("-DSTILL_FLAVOUR_BYTES={bytes}")).arg(source.join("liburcu/sonames.c"));
            command.arg("-o").arg(folder.join(&soname)).arg(format!("-Wl,-soname,{soname}"));
            command.arg("-L").arg(lib).args(["-lstillpoint", "-ldl"]);
            command.args([
                "-Wl,-z,defs",
                "-Wl,-z,relro,-z,now",
                "-Wl,-z,nodelete",
                "-Wl,-rpath,$ORIGIN/../..",
            ]);
            match command.status() {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("{soname} could not be compiled: {status}")),
                Err(error) => return Err(format!("{}: {error}", command.get_program().to_string_lossy())),
            }
        }
        Ok(())
    }

    /// The version of the interface: that of what is installed, and at least the one that has polling.
    fn version(&self) -> &str {
        let number = |version: &str| {
            let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
            [(); 3].map(|()| parts.next().unwrap_or(0))
        };
        match &self.version {
            Some(version) if number(version) > number(Self::POLLING) => version,
            _ => Self::POLLING,
        }
    }
}

/// One folder is enough: the headers there find the others beside them. Makefiles often pass on the flags without quotes.
fn pkg_config_of_liburcu(
    Options { prefix, libdir, .. }: &Options,
    name: &str,
    installed: &Liburcu,
) -> String {
    let (prefix, libdir, version) = (prefix.display(), libdir.display(), installed.version());
    let common = if installed.has_common { " -lurcu-common" } else { "" };
    format!(
        "\
prefix={prefix}
includedir=${{prefix}}/include
libdir=${{prefix}}/{libdir}

Name: {name}
Description: The interface of liburcu, over stillpoint
Version: {version}
Cflags: -I${{includedir}}/stillpoint/liburcu
Libs: -L${{libdir}} -lstillpoint{common}
Libs.private: {PRIVATE}
"
    )
}

fn cmake_config(Options { libdir, .. }: &Options, soname: &str) -> String {
    let up = "/..".repeat(libdir.components().count() + 2);
    let libdir = libdir.display();
    format!(
        "\
# The targets stillpoint::stillpoint (shared), stillpoint::static, and stillpoint::dpdk (the headers in place of DPDK's, shared).
get_filename_component(stillpoint_PREFIX \"${{CMAKE_CURRENT_LIST_DIR}}{up}\" ABSOLUTE)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_system_does_not_know_is_named() {
        let lib = Path::new("/opt/lib");
        let known = next_steps(lib, true, true);
        assert!(known.contains("ldconfig") && !known.contains("/opt"), "{known}");
        let unknown = next_steps(lib, false, false);
        for words in ["PKG_CONFIG_PATH=/opt/lib/pkgconfig\n", " -Wl,-rpath,/opt/lib "] {
            assert!(unknown.contains(words), "{unknown}");
        }
        assert!(!unknown.contains("ldconfig"), "{unknown}");
    }
}
