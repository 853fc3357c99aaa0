//! The parts of a guest, where they are found, and the packages that install what is missing.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use super::program::{Program, in_path};
use crate::error::Stop;

/// The file name of QEMU for this architecture.
pub const QEMU: &str = "qemu-system-x86_64";
/// Debian's package with it.
pub const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Debian's package with a kernel and its modules.
pub(super) const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// Where distributions put kernels: the folder, and the folder of a kernel's modules with the kernel inside.
pub const KERNEL_FOLDER: &str = "/boot";
/// See [`KERNEL_FOLDER`].
pub const MODULE_FOLDER: &str = "/usr/lib/modules";

/// The parts of a guest.
#[derive(Debug)]
pub struct Needs {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// The image of a kernel.
    pub kernel: PathBuf,
    /// What the guest runs.
    pub program: Program,
}

impl Needs {
    /// Finds the parts. A part that no flag names is looked for in its usual places. The inner error says in one line
    /// what this machine lacks, and how to get it.
    ///
    /// # Errors
    /// The outer error: a file that a flag names cannot be used.
    pub fn find(
        qemu: Option<&Path>,
        kernel: Option<&Path>,
        program: Option<&Path>,
    ) -> Result<Result<Self, String>, Stop> {
        let qemu = named(qemu)?.or_else(self::qemu);
        let kernel = named(kernel)?.or_else(self::kernel);
        let program = Program::find(program)?;
        if let Some(reason) = other_architecture() {
            return Ok(Err(reason));
        }
        Ok(match (qemu, kernel, program) {
            (Some(qemu), Some(kernel), Ok(program)) => Ok(Self { qemu, kernel, program }),
            (qemu, kernel, program) => Err(missing(qemu.is_some(), kernel.is_some(), program.err())),
        })
    }
}

/// Checks a file that a flag names, and returns its absolute path: a program without a slash would be looked for in
/// PATH.
pub fn named(file: Option<&Path>) -> Result<Option<PathBuf>, Stop> {
    let Some(file) = file else { return Ok(None) };
    let checked = File::open(file).and_then(|open| open.metadata());
    match checked {
        Ok(found) if found.is_file() => {
            Ok(Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned())))
        }
        Ok(_) => Err(Stop::usage(format!("{} is not a file", file.display()))),
        Err(error) => Err(Stop::usage(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Why this architecture has no guests, if it has none.
pub fn other_architecture() -> Option<String> {
    (!cfg!(target_arch = "x86_64"))
        .then(|| format!("guests need an x86_64 machine, and this one is {}", std::env::consts::ARCH))
}

/// What is missing, and how to get it.
fn missing(qemu: bool, kernel: bool, program: Option<String>) -> String {
    let mut parts = Vec::new();
    let mut packages = Vec::new();
    if !qemu {
        parts.push(format!("{QEMU} is not in PATH"));
        packages.push(QEMU_PACKAGE);
    }
    if !kernel {
        parts.push(format!("{KERNEL_FOLDER} and {MODULE_FOLDER} have no kernel that can be read"));
        packages.push(KERNEL_PACKAGE);
    }
    if !packages.is_empty() {
        let (packages, last) = (packages.join(" "), parts.pop().unwrap_or_default());
        parts.push(format!("{last} (on Debian: apt-get install --no-install-recommends {packages})"));
    }
    parts.extend(program);
    parts.join("; ")
}

/// For `doctor`: the parts of a guest, or what is missing.
pub fn parts() -> Result<String, String> {
    match (qemu(), kernel(), Program::find(None)) {
        (Some(qemu), Some(kernel), Ok(Ok(program))) if other_architecture().is_none() => {
            let how = if has_kvm() {
                "/dev/kvm can be opened"
            } else {
                "software emulation, as /dev/kvm cannot be opened"
            };
            Ok(format!("{}, {}, {}, {how}", qemu.display(), kernel.display(), program.describe()))
        }
        (qemu, kernel, program) => Err(other_architecture().unwrap_or_else(|| {
            let program = program.map_err(|error| error.to_string()).and_then(|program| program);
            missing(qemu.is_some(), kernel.is_some(), program.err())
        })),
    }
}

/// QEMU in the folders of `PATH`.
pub fn qemu() -> Option<PathBuf> {
    in_path(QEMU, std::env::var_os("PATH").as_deref())
}

/// The newest kernel of this machine that can be read.
fn kernel() -> Option<PathBuf> {
    kernel_in(Path::new(KERNEL_FOLDER), Path::new(MODULE_FOLDER))
}

fn kernel_in(boot: &Path, modules: &Path) -> Option<PathBuf> {
    kernels_in(boot, modules).max_by_key(|(version, _)| rank(version)).map(|(_, file)| file)
}

/// The kernels in such folders that can be read, with their versions.
pub fn kernels_in(boot: &Path, modules: &Path) -> impl DoubleEndedIterator<Item = (String, PathBuf)> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let in_boot = entries(boot).into_iter().filter_map(|file| {
        let version = file.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        Some((version, file))
    });
    let in_modules = entries(modules).into_iter().filter_map(|folder| {
        let version = folder.file_name()?.to_str()?.to_owned();
        Some((version, folder.join("vmlinuz")))
    });
    in_boot.chain(in_modules).filter(|(_, file)| {
        File::open(file).and_then(|open| open.metadata()).is_ok_and(|found| found.is_file())
    })
}

/// Of two versions, the kernel with the higher rank is taken: a cloud kernel, or else the newer one. 6.10 is above 6.9.
pub fn rank(version: &str) -> (bool, Vec<u64>) {
    let numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (version.contains("cloud"), numbers.collect())
}

/// Whether this process may use KVM.
pub fn has_kvm() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_found_and_a_cloud_kernel_goes_first() {
        let root = tempfile::tempdir().unwrap();
        let (boot, modules) = (root.path().join("boot"), root.path().join("modules"));
        assert_eq!(kernel_in(&boot, &modules), None);
        fs::create_dir(&boot).unwrap();
        fs::create_dir_all(modules.join("6.10.1-generic")).unwrap();
        let put = |file: PathBuf| fs::write(&file, "kernel").map(|()| file).unwrap();
        put(boot.join("System.map-9.0"));
        fs::create_dir(boot.join("vmlinuz-8.0")).unwrap();
        assert_eq!(kernel_in(&boot, &modules), None, "neither a map nor a folder is a kernel");
        let old = put(boot.join("vmlinuz-6.9.3-amd64"));
        assert_eq!(kernel_in(&boot, &modules), Some(old));
        let newer = put(modules.join("6.10.1-generic/vmlinuz"));
        assert_eq!(kernel_in(&boot, &modules), Some(newer));
        put(boot.join("vmlinuz-5.10.0-9-cloud-amd64"));
        let cloud = put(boot.join("vmlinuz-5.10.0-10-cloud-amd64"));
        assert_eq!(kernel_in(&boot, &modules), Some(cloud));
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let both = missing(false, false, None);
        assert!(both.contains("qemu-system-x86_64 is not in PATH"), "{both}");
        assert!(both.contains("--no-install-recommends qemu-system-x86 linux-image-cloud-amd64)"), "{both}");
        let kernel = missing(true, false, Some("no program".to_owned()));
        assert!(
            !kernel.contains("qemu") && kernel.contains("recommends linux-image-cloud-amd64)"),
            "{kernel}"
        );
        assert!(kernel.ends_with("; no program"), "{kernel}");
    }
}
