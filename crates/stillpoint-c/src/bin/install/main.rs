//! Builds the libraries, and installs them with the headers, manual pages, a `pkg-config` file and a CMake package.
//!
//! The shared library is linked from the static one: see `docs/design/capi.md`.

mod dpdk;
mod found;
mod library;
mod liburcu;
mod manual;
mod tools;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use dpdk::Dpdk;
use tools::{copy, copy_folder, failed, make_folder, names};

const USAGE: &str = "\
Build and install stillpoint for C: headers, libraries, manual, a pkg-config file, a CMake package

Usage: install [--prefix DIR] [--destdir DIR] [--libdir DIR] [--profile NAME | --from DIR] [--no-strip] [--dpdk]

  --prefix DIR    Where programs will find it [default: /usr/local]
  --destdir DIR   Prefix of every path that is written, for packages
  --libdir DIR    Where to install the libraries, below the prefix [default: lib]
  --profile NAME  Cargo's profile to build with [default: release]
  --from DIR      Build nothing, without cargo: the static library is in DIR, such as target/release
  --no-strip      Leave the debug information in the shared library, instead of in a file in LIBDIR/.debug
  --dpdk          Also install the driver of DPDK's rte_mempool, for the DPDK that is installed

$CC links the shared library and compiles the driver, or cc, with $CPPFLAGS, $CFLAGS and $LDFLAGS.
$OBJCOPY separates debug information, or objcopy.";

const VERSION: &str = env!("CARGO_PKG_VERSION");

struct Options {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    libdir: PathBuf,
    profile: Option<OsString>,
    from: Option<PathBuf>,
    strips: bool,
    dpdk: bool,
}

fn main() -> ExitCode {
    // SAFETY: changes only this process. Everybody may read what is installed.
    unsafe { libc::umask(0o022) };
    let answer = match parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => install(&options).map(|dpdk| print!("{}", summary(&options, dpdk.as_ref()))),
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
        profile: None,
        from: None,
        strips: true,
        dpdk: false,
    };
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match &*name {
            "-h" | "--help" => return Ok(None),
            "--prefix" => options.prefix = value()?.into(),
            // Packages pass a variable, which may be empty.
            "--destdir" => {
                options.destdir = Some(PathBuf::from(value()?)).filter(|path| path != Path::new(""))
            }
            "--libdir" => options.libdir = value()?.into(),
            "--profile" => options.profile = Some(value()?),
            "--from" => options.from = Some(value()?.into()),
            "--no-strip" => options.strips = false,
            "--dpdk" => options.dpdk = true,
            _ => return Err(format!("there is no option {name}")),
        }
    }
    let prefix = options.prefix.display();
    if !options.prefix.is_absolute() {
        return Err(format!("--prefix {prefix} is not an absolute path"));
    }
    if prefix.to_string().contains([' ', ',']) {
        return Err(format!(
            "--prefix {prefix} has a space or a comma, which pkg-config and linkers take for an end"
        ));
    }
    // Below the prefix, also if it was said as a whole path.
    let libdir = options.libdir.strip_prefix(&options.prefix).unwrap_or(&options.libdir);
    let parts = libdir.components().filter(|part| *part != Component::CurDir);
    let below: PathBuf = parts.clone().filter(|part| matches!(part, Component::Normal(_))).collect();
    if parts.count() != below.components().count() {
        return Err(format!("--libdir {} is not below the prefix, {prefix}", options.libdir.display()));
    }
    options.libdir = below;
    if options.from.is_some() && options.profile.is_some() {
        return Err(
            "--profile builds the library, and --from builds nothing: leave out one of them".to_owned()
        );
    }
    Ok(Some(options))
}

impl Options {
    /// The folder that programs will find as the prefix.
    fn root(&self) -> PathBuf {
        match &self.destdir {
            Some(destdir) => destdir.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        }
    }

    /// The folder in which programs will find the libraries.
    fn lib(&self) -> PathBuf {
        self.prefix.join(&self.libdir)
    }

    /// How a library two folders below the others finds them: the loader looks there by itself, or has to be told. What is built for other
    /// machines does not depend on this one.
    fn search_path(&self) -> Option<&'static str> {
        let is_known = match &self.destdir {
            Some(_) => self.prefix == Path::new("/usr"),
            None => is_searched(&self.lib()),
        };
        (!is_known).then_some("-Wl,-rpath,$ORIGIN/../..")
    }
}

/// Returns the DPDK for which the driver was compiled.
fn install(options: &Options) -> Result<Option<Dpdk>, String> {
    let root = options.root();
    let (include, lib) = (root.join("include"), root.join(&options.libdir));
    let dpdk = options.dpdk.then(Dpdk::installed).transpose()?;
    make_folder(&lib)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = match &options.from {
        Some(folder) => library::there(folder)?,
        None => library::build(source, options.profile.as_deref().unwrap_or("release".as_ref()))?,
    };
    // What may fail comes first. Programs that run keep the library that they have: it is replaced as a whole.
    let (shared, soname) = (format!("libstillpoint.so.{VERSION}"), library::soname());
    library::link(&built, &lib, &shared, &soname, options.strips)?;
    for (link, target) in [(&*soname, &*shared), ("libstillpoint.so", &*soname)] {
        let (link, new) = (lib.join(link), lib.join("libstillpoint.new"));
        let _ = fs::remove_file(&new);
        symlink(target, &new)
            .and_then(|()| fs::rename(&new, &link))
            .map_err(|error| failed(&link, &error))?;
    }
    copy(&built, &lib.join("libstillpoint.a"))?;
    // An earlier version may have had other headers.
    let _ = fs::remove_dir_all(include.join("stillpoint"));
    copy_folder(&source.join("include"), &include)?;
    found::write_files(options, &lib, &soname)?;
    liburcu::install(options, source, &lib)?;
    if let Some(dpdk) = &dpdk {
        dpdk.compile_driver(options, source, &include, &lib)?;
    }
    let share = root.join("share");
    manual::write_pages(&source.join("include"), &share.join("man"))?;
    copy_documents(source, &share.join("doc/stillpoint"))?;
    Ok(dpdk)
}

/// Copies the licences, the examples and the book.
fn copy_documents(source: &Path, to: &Path) -> Result<(), String> {
    make_folder(to)?;
    let repository = source.join("../..");
    for file in ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&repository.join(file), &to.join(file))?;
    }
    copy_folder(&source.join("examples"), &to.join("examples"))?;
    copy_folder(&repository.join("docs"), &to.join("book"))
}

/// What was installed where, and how a program is compiled with it.
fn summary(options: &Options, dpdk: Option<&Dpdk>) -> String {
    let lib = options.libdir.display();
    let mut text = format!(
        "\
Installed stillpoint {VERSION} in {}:
  include/stillpoint.h include/stillpoint
  {lib}/libstillpoint.so {lib}/libstillpoint.a
  {lib}/pkgconfig/stillpoint.pc {lib}/cmake/stillpoint
  share/doc/stillpoint share/man
  in place of DPDK: {lib}/pkgconfig/stillpoint-dpdk.pc
  in place of liburcu: {lib}/stillpoint/liburcu/pkgconfig
  for programs that were compiled against liburcu, by LD_LIBRARY_PATH: {lib}/stillpoint/liburcu
",
        options.root().display()
    );
    if let Some(dpdk) = dpdk {
        text += &dpdk.summary(&options.lib());
    }
    if options.destdir.is_none() {
        let lib = options.lib();
        let in_pkg_config =
            names("pkg-config", &["--variable=pc_path", "pkg-config"], &lib.join("pkgconfig"));
        text += &next_steps(&lib, in_pkg_config, is_searched(&lib));
    }
    text
}

/// Whether the loader looks for libraries in this folder, once `ldconfig` has run.
fn is_searched(lib: &Path) -> bool {
    names("/sbin/ldconfig", &["-N", "-X", "-v"], lib)
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
