//! The parts of the module's test, where they are found, and the packages that install what is missing.

use std::path::{Path, PathBuf};

use stillpoint_harness::error::Stop;
use stillpoint_harness::qemu::needs;
use stillpoint_harness::qemu::program::{self, Program};

use super::Options;

/// Where distributions put headers: `linux-headers-VERSION`.
const HEADER_FOLDER: &str = "/usr/src";
const HEADER_PREFIX: &str = "linux-headers-";
const IMAGE_PACKAGE: &str = "linux-image-cloud-amd64";
/// A package that depends on the headers of the newest version: their own package has the version in its name.
const HEADER_PACKAGE: &str = "linux-headers-cloud-amd64";

/// The parts.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) qemu: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) headers: PathBuf,
    pub(super) sources: PathBuf,
    /// The program for the test of the library; the error says why there is none.
    pub(super) program: Result<Program, String>,
}

impl Parts {
    /// Finds the parts. The inner error says in one line what this machine lacks and how to get it.
    ///
    /// # Errors
    /// The outer error: a part that a flag names cannot be used.
    pub(super) fn find(options: &Options) -> Result<Result<Self, String>, Stop> {
        let qemu = needs::named(options.qemu.as_deref())?.or_else(needs::qemu);
        let sources = match &options.sources {
            Some(folder) if folder.join("Kbuild").is_file() => Some(folder.clone()),
            Some(folder) => {
                return Err(Stop::usage(format!(
                    "{} does not hold the module's sources: it has no Kbuild",
                    folder.display()
                )));
            }
            None => program::workspace()
                .map(|workspace| workspace.join("kernel"))
                .filter(|folder| folder.join("Kbuild").is_file()),
        };
        let pair = match (named_pair(options)?, &options.release) {
            (Some(pair), _) => Some(pair),
            (None, Some(release)) => Some(installed(Some(release)).ok_or_else(|| {
                Stop::usage(format!(
                    "the image and the headers of {release} are not both installed: see apt-cache policy \
                     {IMAGE_PACKAGE} {HEADER_PACKAGE}"
                ))
            })?),
            (None, None) => installed(None),
        };
        if let Some(reason) = needs::other_architecture() {
            return Ok(Err(reason));
        }
        let program = Program::find(None)?;
        let path = std::env::var_os("PATH");
        let tools = ["make", "gcc"].map(|tool| (tool, program::in_path(tool, path.as_deref()).is_some()));
        Ok(match (qemu, sources, pair) {
            (Some(qemu), Some(sources), Some((kernel, headers))) if tools.iter().all(|tool| tool.1) => {
                Ok(Self { qemu, kernel, headers, sources, program })
            }
            (qemu, sources, pair) => Err(missing(qemu.is_some(), sources.is_some(), pair.is_some(), &tools)),
        })
    }
}

/// Image and headers as named by flags, which come together.
fn named_pair(options: &Options) -> Result<Option<(PathBuf, PathBuf)>, Stop> {
    let (Some(kernel), Some(headers)) = (needs::named(options.kernel.as_deref())?, &options.headers) else {
        return Ok(None);
    };
    if !headers.join("Makefile").is_file() {
        let headers = headers.display();
        return Err(Stop::usage(format!("{headers} does not hold a kernel's headers: it has no Makefile")));
    }
    // `make` runs in another folder.
    Ok(Some((kernel, std::path::absolute(headers).unwrap_or_else(|_| headers.clone()))))
}

/// The image and the headers of a version, or of the best one that has both.
fn installed(release: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let [source, boot, modules] = [HEADER_FOLDER, needs::KERNEL_FOLDER, needs::MODULE_FOLDER].map(Path::new);
    installed_in(release, source, boot, modules)
}

fn installed_in(
    release: Option<&str>,
    source: &Path,
    boot: &Path,
    modules: &Path,
) -> Option<(PathBuf, PathBuf)> {
    let headers = |version: &str| source.join(format!("{HEADER_PREFIX}{version}"));
    // Reversed: of the images of one version, the last one is taken, and that is the one in `boot`.
    needs::kernels_in(boot, modules)
        .rev()
        .filter(|(version, _)| release.is_none_or(|release| release == version))
        .filter(|(version, _)| headers(version).join("Makefile").is_file())
        .max_by_key(|(version, _)| needs::rank(version))
        .map(|(version, image)| (image, headers(&version)))
}

fn missing(qemu: bool, sources: bool, pair: bool, tools: &[(&str, bool)]) -> String {
    let (mut parts, mut packages) = (Vec::new(), Vec::new());
    if !qemu {
        parts.push(format!("{} is not in PATH", needs::QEMU));
        packages.push(needs::QEMU_PACKAGE);
    }
    if !pair {
        parts.push("no kernel has both its image and its headers installed".to_owned());
        packages.extend([IMAGE_PACKAGE, HEADER_PACKAGE]);
    }
    for (tool, _) in tools.iter().filter(|(_, there)| !there) {
        parts.push(format!("{tool} is not in PATH"));
        packages.push(tool);
    }
    if let Some(last) = parts.pop() {
        let packages = packages.join(" ");
        parts.push(format!(
            "{last} (on Debian: apt-get install --no-install-recommends {packages} libc6-dev)"
        ));
    }
    if !sources {
        parts.push(
            "the module's sources are no longer where this program was built: give their folder with --sources".to_owned(),
        );
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_version_counts_when_both_parts_are_there() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| root.path().join(name);
        let of = |release| installed_in(release, &folder("src"), &folder("boot"), &folder("modules"));
        let find = || of(Some("6.1-cloud"));
        fs::create_dir_all(folder("boot")).unwrap();
        fs::write(folder("boot").join("vmlinuz-6.1-cloud"), "image").unwrap();
        assert_eq!(find(), None);
        let headers = folder("src").join("linux-headers-6.1-cloud");
        fs::create_dir_all(&headers).unwrap();
        assert_eq!(find(), None, "a folder without a Makefile holds no headers");
        fs::write(headers.join("Makefile"), "").unwrap();
        let cloud = Some((folder("boot").join("vmlinuz-6.1-cloud"), headers));
        assert_eq!(find(), cloud);
        // The image in the folder of the modules counts if there is no other one.
        let put = |version: &str| {
            let (headers, modules) =
                (folder("src").join(format!("linux-headers-{version}")), folder("modules").join(version));
            fs::create_dir_all(&modules).unwrap();
            fs::create_dir_all(&headers).unwrap();
            fs::write(modules.join("vmlinuz"), "image").unwrap();
            fs::write(headers.join("Makefile"), "").unwrap();
            Some((modules.join("vmlinuz"), headers))
        };
        put("6.1-cloud");
        assert_eq!(find(), cloud);
        let newer = put("6.12");
        assert_eq!(of(Some("6.12")), newer);
        assert_eq!(of(None), cloud, "a cloud kernel goes first");
        let best = put("6.12-cloud");
        assert_eq!(of(None), best);
        assert_eq!(of(Some("6.13")), None);
    }

    #[test]
    fn headers_that_are_named_are_found_from_any_folder() {
        let named = |arguments: &[&str]| {
            #[derive(clap::Parser)]
            struct Line {
                #[command(flatten)]
                options: Options,
            }
            let arguments = ["module"].iter().chain(arguments);
            named_pair(&<Line as clap::Parser>::try_parse_from(arguments).unwrap().options)
        };
        // Paths from the folder of this crate; the module's own sources have a Makefile, as headers do.
        let (kernel, headers) =
            named(&["--kernel", "Cargo.toml", "--headers", "../../kernel"]).unwrap().unwrap();
        assert!(kernel.is_absolute(), "{kernel:?}");
        assert!(headers.is_absolute() && headers.join("Makefile").is_file(), "{headers:?}");
        assert!(named(&["--kernel", "Cargo.toml", "--headers", "src"]).is_err());
        assert!(named(&[]).unwrap().is_none());
    }

    #[test]
    fn what_is_missing_is_named_with_its_packages() {
        let all = missing(false, false, false, &[("make", false), ("gcc", true)]);
        for part in ["qemu-system-x86_64", "make is not in PATH", HEADER_PACKAGE, IMAGE_PACKAGE, "--sources"]
        {
            assert!(all.contains(part), "'{part}' is not in: {all}");
        }
        assert!(!all.contains("gcc is not"), "{all}");
        assert!(!missing(true, false, true, &[]).contains("apt-get"));
    }
}
