//! The driver of DPDK's `rte_mempool`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::{compiler, make_folder, run, said};
use crate::Options;

/// What is installed of DPDK.
pub(crate) struct Dpdk {
    flags: String,
    /// The version of the interface of its shared libraries, by which it names the folder of drivers.
    abi: String,
    /// The folder of its shared libraries.
    lib: PathBuf,
}

impl Dpdk {
    const DRIVER: &str = "librte_mempool_stillpoint.so";

    pub(crate) fn installed() -> Result<Self, String> {
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

    pub(crate) fn compile_driver(
        &self,
        options: &Options,
        source: &Path,
        include: &Path,
        lib: &Path,
    ) -> Result<(), String> {
        let folder = self.folder(lib);
        make_folder(&folder)?;
        let mut command = compiler();
        command.args(["-std=gnu11", "-fPIC", "-shared"]).args(self.flags.split_whitespace());
        command
            .arg("-I")
            .arg(include)
            .arg(source.join("dpdk/mempool.c"))
            .arg("-o")
            .arg(folder.join(Self::DRIVER));
        // By its path: the flags of packages may name folders of other versions.
        command.arg(lib.join("libstillpoint.so"));
        command.arg("-L").arg(&self.lib).args(["-lrte_mempool", "-lrte_eal"]);
        command.args(["-Wl,-z,defs", "-Wl,-z,relro,-z,now"]).args(options.search_path());
        run(&mut command, "compile the driver of rte_mempool")
    }

    pub(crate) fn summary(&self, lib: &Path) -> String {
        let folder = self.folder(lib);
        let loads = match fs::canonicalize(&folder).ok() == fs::canonicalize(self.folder(&self.lib)).ok() {
            true => "programs of DPDK load it by themselves".to_owned(),
            false => format!("for programs with -d {}", folder.join(Self::DRIVER).display()),
        };
        format!("  the driver \"stillpoint\" of rte_mempool: {loads}\n")
    }
}
