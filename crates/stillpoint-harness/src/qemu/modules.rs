//! Modules of a guest's kernel, for a guest that loads them itself: it has no program for that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::needs::KERNEL_PACKAGE;

/// What precedes the names that a module needs, in the module's own description of itself.
const NEEDS: &[u8] = b"\0depends=";

/// The file of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name, as the kernel writes it.
    pub name: String,
    /// What the file holds.
    pub bytes: Vec<u8>,
}

/// The modules with these names that are not part of the kernel, each after those that it needs, from the folder that belongs to the
/// image of a kernel.
///
/// # Errors
/// When the folder or a module is not there, and which package has it.
pub fn with_needed(kernel: &Path, names: &[&str]) -> Result<Vec<Module>, String> {
    let folder = folder(kernel).ok_or_else(|| {
        format!("there are no modules of {}: they come with {KERNEL_PACKAGE}", kernel.display())
    })?;
    let mut files = BTreeMap::new();
    walk(&folder, &mut files);
    let built_in = fs::read_to_string(folder.with_file_name("modules.builtin")).unwrap_or_default();
    let built_in: Vec<String> = built_in.lines().filter_map(|path| name(path.rsplit('/').next()?)).collect();
    let mut found = Vec::new();
    for name in names {
        add(name, &files, &built_in, &mut found)
            .map_err(|missing| format!("{}: {missing}", folder.display()))?;
    }
    Ok(found)
}

/// The folder with the modules of `ROOT/boot/vmlinuz-VERSION` or of `modules/VERSION/vmlinuz`, also below another root.
fn folder(kernel: &Path) -> Option<PathBuf> {
    let beside = kernel.parent()?;
    let version = kernel.file_name()?.to_str()?.strip_prefix("vmlinuz-").unwrap_or("none");
    let root = beside.parent()?;
    let below = |modules: &str| root.join(modules).join(version).join("kernel");
    [beside.join("kernel"), below("lib/modules"), below("usr/lib/modules")]
        .into_iter()
        .find(|folder| folder.is_dir())
}

/// The files of modules in a folder and those below it, by the names of the modules.
fn walk(folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, files);
        } else if let Some(name) = entry.file_name().to_str().and_then(name) {
            files.insert(name, path);
        }
    }
}

/// The name of the module in a file of this name.
fn name(file: &str) -> Option<String> {
    Some(file.split_once(".ko")?.0.replace('-', "_"))
}

fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    built_in: &[String],
    found: &mut Vec<Module>,
) -> Result<(), String> {
    if found.iter().any(|module| module.name == name) || built_in.iter().any(|module| module == name) {
        return Ok(());
    }
    let path = files.get(name).ok_or_else(|| format!("no module {name}; {KERNEL_PACKAGE} has it"))?;
    if path.extension().is_none_or(|end| end != "ko") {
        return Err(format!("the module {name} is compressed: unpack {}", path.display()));
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot read the module {name}: {error}"))?;
    for needed in needed(&bytes) {
        add(&needed, files, built_in, found)?;
    }
    found.push(Module { name: name.to_owned(), bytes });
    Ok(())
}

/// The names of the modules that this one needs.
fn needed(module: &[u8]) -> Vec<String> {
    let Some(at) = module.windows(NEEDS.len()).position(|window| window == NEEDS) else { return Vec::new() };
    let names = module[at + NEEDS.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_what_it_needs_or_is_missing_by_name() {
        let root = tempfile::tempdir().unwrap();
        let kernel = root.path().join("boot/vmlinuz-6.1");
        let drivers = root.path().join("lib/modules/6.1/kernel/drivers");
        assert!(with_needed(&kernel, &["zram"]).unwrap_err().ends_with("come with linux-image-cloud-amd64"));
        fs::create_dir_all(&drivers).unwrap();
        let put = |file: &str, needs: &str| {
            fs::write(drivers.join(file), format!("code\0license=GPL\0depends={needs}\0name=x\0")).unwrap();
        };
        put("zram.ko", "zsmalloc,lzo-rle");
        put("zsmalloc.ko", "");
        let missing = with_needed(&kernel, &["zram"]).unwrap_err();
        assert!(missing.ends_with("no module lzo_rle; linux-image-cloud-amd64 has it"), "{missing}");
        put("lzo-rle.ko.xz", "");
        assert!(with_needed(&kernel, &["zram"]).unwrap_err().contains("lzo_rle is compressed"));
        put("lzo-rle.ko", "zsmalloc");
        fs::remove_file(drivers.join("lzo-rle.ko.xz")).unwrap();
        let found = with_needed(&kernel, &["zsmalloc", "zram"]).unwrap();
        let names: Vec<&str> = found.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["zsmalloc", "lzo_rle", "zram"]);
        assert_eq!(needed(b"no module at all"), [""; 0]);

        fs::write(
            root.path().join("lib/modules/6.1/modules.builtin"),
            "kernel/lib/lzo-rle.ko\nkernel/x.ko\n",
        )
        .unwrap();
        let found = with_needed(&kernel, &["zsmalloc", "x", "zram"]).unwrap();
        assert_eq!(found.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(), ["zsmalloc", "zram"]);
    }
}
