//! The program for the guest: this one, linked statically, since the guest has no libraries.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Stop;
use crate::{interrupt, output};

/// The package of the program `stillpoint`.
const PACKAGE: &str = "stillpoint-lab";
/// The target of the static program. Because cargo gets a target, it does not apply RUSTFLAGS to build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// This much of a program holds its header and the list of its segments.
const START: u64 = 1 << 16;

/// Where the static program comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A static program that exists.
    File(PathBuf),
    /// Built by cargo, from the workspace of this program.
    Build {
        /// The folder.
        workspace: PathBuf,
        /// Cargo.
        cargo: PathBuf,
    },
}

impl Program {
    /// Finds the program. If there is none, the inner error says what to do.
    ///
    /// # Errors
    /// The outer error: `named` is not such a program.
    pub fn find(named: Option<&Path>) -> Result<Result<Self, String>, Stop> {
        if let Some(file) = named {
            return match is_static_file(file) {
                Ok(true) => Ok(Ok(Self::File(file.to_owned()))),
                Ok(false) => {
                    let file = file.display();
                    Err(Stop::usage(format!("{file} is not a static program for x86_64: {}", how_to_build())))
                }
                Err(error) => Err(Stop::usage(format!("cannot read {}: {error}", file.display()))),
            };
        }
        let own = std::env::current_exe().ok();
        if let Some(file) = own.filter(|file| is_static_file(file).unwrap_or(false)) {
            return Ok(Ok(Self::File(file)));
        }
        let cargo = match std::env::var_os("CARGO") {
            Some(cargo) => Some(PathBuf::from(cargo)).filter(|cargo| cargo.is_file()),
            None => in_path("cargo", std::env::var_os("PATH").as_deref()),
        };
        Ok(match (workspace(), cargo) {
            (Some(workspace), Some(cargo)) => Ok(Self::Build { workspace, cargo }),
            (workspace, _) => Err(format!(
                "this program is not static, and {} to build one that is: {}",
                if workspace.is_none() { "its source is not there" } else { "there is no cargo in PATH" },
                how_to_build()
            )),
        })
    }

    /// Where the program comes from, in words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::File(file) => format!("{} is static", file.display()),
            Self::Build { .. } => "cargo builds the static program".to_owned(),
        }
    }

    /// The bytes of the program, built if need be.
    pub fn read(&self) -> Result<Vec<u8>, Stop> {
        let file = match self {
            Self::File(file) => file.clone(),
            Self::Build { workspace, cargo } => build(workspace, cargo)?,
        };
        let failed = |error: io::Error| Stop::Failed(format!("cannot read {}: {error}", file.display()));
        let bytes = fs::read(&file).map_err(failed)?;
        if is_static(&bytes) {
            Ok(bytes)
        } else {
            Err(Stop::Failed(format!("{} was built, but is not static: {}", file.display(), how_to_build())))
        }
    }
}

/// An executable file in the folders of `path`.
pub fn in_path(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(runs)
}

/// The libraries of a program, and then its loader: what `ldd` says.
///
/// # Errors
/// When `ldd` cannot be run, or does not find all of them.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let said =
        Command::new("ldd").arg(program).output().map_err(|error| format!("cannot run ldd: {error}"))?;
    said.status
        .success()
        .then(|| paths(&String::from_utf8_lossy(&said.stdout)))
        .flatten()
        .ok_or_else(|| format!("ldd does not find the libraries of {}", program.display()))
}

/// The paths in lines such as `name => /path (address)` and `/path (address)`; `None` if a line has none.
fn paths(said: &str) -> Option<Vec<PathBuf>> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    said.lines().filter(|line| !line.trim().starts_with("linux-vdso")).map(path).collect()
}

fn how_to_build() -> String {
    format!(
        "build it with RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target {TARGET}, and give it \
        with --init"
    )
}

/// The folder of the sources, if they are still where this program was built.
pub fn workspace() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = own.ancestors().nth(2)?;
    (own.join("Cargo.toml").is_file() && workspace.join("Cargo.lock").is_file()).then(|| workspace.to_owned())
}

/// Builds the static program in a separate target folder, and returns its path.
fn build(workspace: &Path, cargo: &Path) -> Result<PathBuf, Stop> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => workspace.join(folder),
        None => workspace.join("target"),
    };
    let target = target.join("guest");
    output::tell("building the static program for the guest (about a minute the first time)");
    let status = Command::new(cargo)
        .current_dir(workspace)
        .args(["build", "--quiet", "--release", "--locked", "--package", PACKAGE])
        .args(["--bin", "stillpoint", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // This variable would override RUSTFLAGS.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        // Standard output may belong to the result.
        .stdout(Stdio::null())
        .status()
        .map_err(|error| Stop::Failed(format!("cannot start {}: {error}", cargo.display())))?;
    if interrupt::requested() {
        return Err(Stop::Failed("interrupted while the static program was built".to_owned()));
    }
    if !status.success() {
        return Err(Stop::Failed(format!("cannot build the static program ({status}): {}", how_to_build())));
    }
    Ok(target.join(TARGET).join("release").join("stillpoint"))
}

fn is_static_file(file: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(file)?.take(START).read_to_end(&mut start)?;
    Ok(is_static(&start))
}

/// Whether these are the first bytes of a program for x86-64 that needs no dynamic linker: an ELF file without an
/// interpreter segment (System V ABI, chapters 4 and 5).
fn is_static(file: &[u8]) -> bool {
    const X86_64: u16 = 62;
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    const INTERPRETER: u32 = 3;
    let two = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?));
    // 64 bits, least significant byte first.
    if !file.starts_with(b"\x7fELF\x02\x01") || two(18) != Some(X86_64) {
        return false;
    }
    if !matches!(two(16), Some(EXECUTABLE | SHARED)) {
        return false;
    }
    let (Some(table), Some(size), Some(count)) = (eight(32), two(54), two(56)) else { return false };
    let kinds = (0..usize::from(count)).map(|segment| {
        let offset = usize::from(size).checked_mul(segment)?.checked_add(usize::try_from(table).ok()?)?;
        offset.checked_add(4).and_then(|_| four(offset))
    });
    let kinds: Option<Vec<u32>> = kinds.collect();
    kinds.is_some_and(|kinds| !kinds.is_empty() && !kinds.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A header with segments of these kinds and nothing else.
    fn elf(machine: u16, segments: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 * segments.len()];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[16] = 3;
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (at, kind) in segments.iter().enumerate() {
            file[64 + 56 * at..68 + 56 * at].copy_from_slice(&kind.to_le_bytes());
        }
        file
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert!(is_static(&elf(62, &[6, 1, 1, 2])));
        assert!(!is_static(&elf(62, &[6, 3, 1, 1, 2])));
        assert!(!is_static(&elf(183, &[6, 1])), "a program for aarch64");
        assert!(!is_static(&elf(62, &[])));
    }

    #[test]
    fn what_is_cut_off_is_no_program() {
        let whole = elf(62, &[6, 1, 2]);
        for length in 0..whole.len() - 52 {
            assert!(!is_static(&whole[..length]), "{length} bytes");
        }
        let mut beyond = whole;
        beyond[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(!is_static(&beyond));
    }

    #[test]
    fn a_file_that_was_named_must_serve() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let message = Program::find(Some(file.path())).unwrap_err().to_string();
        assert!(message.contains("not a static program") && message.contains("+crt-static"), "{message}");
        fs::write(file.path(), elf(62, &[1])).unwrap();
        let found = Program::find(Some(file.path())).unwrap().unwrap();
        assert_eq!(found.read().unwrap(), elf(62, &[1]));
        assert!(Program::find(Some(Path::new("/nonexistent"))).is_err());
    }

    #[test]
    fn a_program_is_found_in_the_folders_of_path_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        fs::write(&file, "").unwrap();
        let path = std::env::join_paths([Path::new(""), Path::new("/nonexistent"), folder.path()]).unwrap();
        assert_eq!(in_path("tool", Some(&path)), None, "it is not executable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(in_path("tool", Some(&path)), Some(file));
        assert_eq!(in_path("tool", None), None);
    }

    #[test]
    fn the_paths_of_libraries_are_found() {
        let said =
            "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7e)\n\t/lib64/ld.so.2 (0x7d)\n";
        assert_eq!(paths(said).unwrap(), [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld.so.2")]);
        assert_eq!(paths(&format!("{said}\tlibm.so.6 => not found\n")), None);
        assert_eq!(paths("\tnot a dynamic executable\n"), None);
    }
}
