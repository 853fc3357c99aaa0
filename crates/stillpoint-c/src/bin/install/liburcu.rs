//! In place of liburcu: packages for programs that are compiled, and libraries under its names for those that were compiled before.

use std::path::Path;
use std::process::Command;

use crate::tools::{compiler, make_folder, run, said, write};
use crate::{found, Options};

/// Apart from the other libraries: whoever names these folders gets these files in place of liburcu's.
const FOLDER: &str = "stillpoint/liburcu";

pub(crate) fn install(options: &Options, source: &Path, lib: &Path) -> Result<(), String> {
    let packages = lib.join(FOLDER).join("pkgconfig");
    make_folder(&packages)?;
    let installed = Liburcu::installed();
    for (name, _) in Liburcu::NAMES {
        write(&packages.join(name).with_extension("pc"), pkg_config(options, name, &installed))?;
    }
    Liburcu::compile_names(options, source, lib)
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
    fn compile_names(options: &Options, source: &Path, lib: &Path) -> Result<(), String> {
        let folder = lib.join(FOLDER);
        let search_path = options.search_path();
        for (name, flavour) in Self::NAMES {
            let soname = format!("{name}.so.8");
            let mut command = compiler();
            command.args(["-std=gnu11", "-fPIC", "-fvisibility=hidden", "-shared"]);
            command.arg(format!("-DSTILL_FLAVOUR={flavour}"));
            command.arg(format!("-DSTILL_FLAVOUR_IS_{}", flavour.to_uppercase()));
            let bytes = Self::table_bytes(name, flavour);
            command.arg(format!("-DSTILL_FLAVOUR_BYTES={bytes}")).arg(source.join("liburcu/sonames.c"));
            command.arg("-o").arg(folder.join(&soname)).arg(format!("-Wl,-soname,{soname}"));
            // By its path: the flags of packages may name folders of other versions.
            command.arg(lib.join("libstillpoint.so")).arg("-ldl");
            command.args(["-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,-z,nodelete"]).args(search_path);
            run(&mut command, &format!("compile {soname}"))?;
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
fn pkg_config(Options { prefix, libdir, .. }: &Options, name: &str, installed: &Liburcu) -> String {
    let (prefix, libdir, version) = (prefix.display(), libdir.display(), installed.version());
    let private = found::PRIVATE;
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
Libs.private: {private}
"
    )
}
