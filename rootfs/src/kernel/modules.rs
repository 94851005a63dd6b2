//! Kernel modules: their files, their dependencies, and the order in which they are loaded.
//!
//! The package has no `modules.dep`, which a script of it would make; the modules say the same of
//! themselves in their section `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::elf::{Elf, ElfError};

/// The last bytes of a module with a signature.
const SIGNATURE_END: &[u8] = b"~Module signature appended~\n";

/// Before that end: algorithm, hash, id type, signer and key lengths, padding, signature length.
const SIGNATURE_INFO_BYTES: usize = 12;

/// Why modules cannot be put in order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    #[error("the kernel has no module {0}, neither as a file nor built in")]
    Unknown(String),
    #[error("{name}: {source}")]
    Elf { name: String, source: ElfError },
    #[error("{0} is compressed; only plain .ko files are packed")]
    Compressed(String),
    #[error("modules depend on each other in a circle: {0}")]
    Circle(String),
}

/// A module that is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// With underscores, as in the kernel.
    pub name: String,
    /// Its path in the package.
    pub path: String,
}

/// All modules of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    files: BTreeMap<String, String>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// From the paths of files in a package, and its `modules.builtin`.
    pub fn new<'a>(paths: impl Iterator<Item = &'a str>, built_in: &str) -> Self {
        let files = paths.filter_map(|path| Some((name_of(path)?, path.to_owned()))).collect();
        let built_in = built_in.lines().filter_map(name_of).collect();
        Self { files, built_in }
    }

    /// The wanted modules, each after its dependencies; built-in ones are skipped. `read` returns
    /// the contents of files.
    pub fn in_order<E: From<ModuleError>>(
        &self,
        wanted: &[String],
        mut read: impl FnMut(&str) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<Module>, E> {
        let mut done = Vec::new();
        for name in wanted {
            self.add(&canonical(name), &mut read, &mut Vec::new(), &mut done)?;
        }
        Ok(done)
    }

    fn add<E: From<ModuleError>>(
        &self,
        name: &str,
        read: &mut impl FnMut(&str) -> Result<Vec<u8>, E>,
        way: &mut Vec<String>,
        done: &mut Vec<Module>,
    ) -> Result<(), E> {
        if self.built_in.contains(name) || done.iter().any(|module| module.name == name) {
            return Ok(());
        }
        if way.iter().any(|above| above == name) {
            return Err(ModuleError::Circle(way.join(", ")).into());
        }
        let path = self.files.get(name).ok_or_else(|| ModuleError::Unknown(name.to_owned()))?;
        if Path::new(path).extension() != Some("ko".as_ref()) {
            return Err(ModuleError::Compressed(path.clone()).into());
        }
        let bytes = read(path)?;
        way.push(name.to_owned());
        for needed in needs(name, &bytes)? {
            self.add(&needed, read, way, done)?;
        }
        way.pop();
        done.push(Module { name: name.to_owned(), path: path.clone() });
        Ok(())
    }
}

/// A module's own list of dependencies.
fn needs(name: &str, bytes: &[u8]) -> Result<Vec<String>, ModuleError> {
    let named = |source| ModuleError::Elf { name: name.to_owned(), source };
    let info = Elf::parse(bytes).and_then(|elf| elf.section(".modinfo")).map_err(named)?;
    let depends = info
        .unwrap_or_default()
        .split(|&byte| byte == 0)
        .find_map(|field| field.strip_prefix(b"depends="))
        .unwrap_or_default();
    let depends = String::from_utf8_lossy(depends);
    Ok(depends.split(',').filter(|name| !name.is_empty()).map(canonical).collect())
}

/// `net-failover` and `net_failover` are the same module.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, extension) = file.split_once('.')?;
    extension.starts_with("ko").then(|| canonical(name))
}

/// A module without its signature: our kernels do not require one, and checking costs time.
pub fn without_signature(module: &[u8]) -> &[u8] {
    let Some(rest) = module.strip_suffix(SIGNATURE_END) else { return module };
    let Some(info_at) = rest.len().checked_sub(SIGNATURE_INFO_BYTES) else { return module };
    let length: [u8; 4] = rest[info_at + 8..].try_into().expect("the last four of twelve bytes");
    match info_at.checked_sub(u32::from_be_bytes(length) as usize) {
        Some(end) => &module[..end],
        None => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest file with a section `.modinfo`.
    fn module(depends: &str) -> Vec<u8> {
        let info = format!("license=GPL\0depends={depends}\0name=x\0");
        let names = b"\0.modinfo\0";
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let info_at = bytes.len();
        bytes.extend(info.as_bytes());
        let names_at = bytes.len();
        bytes.extend(names);
        let table = bytes.len();
        for (name, at, length) in [(1, info_at, info.len()), (0, names_at, names.len())] {
            let mut header = vec![0; 64];
            header[0] = name;
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(length as u64).to_le_bytes());
            bytes.extend(header);
        }
        bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        bytes[58..64].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
        bytes
    }

    fn order(wanted: &[&str]) -> Result<Vec<String>, ModuleError> {
        let paths = ["k/virtio-net.ko", "k/net_failover.ko", "k/failover.ko", "k/a.ko", "k/b.ko"];
        let modules = Modules::new(paths.into_iter().chain(["k/c.ko.xz"]), "kernel/fs/ext4.ko\n");
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let read = |path: &str| {
            Ok::<_, ModuleError>(match path {
                "k/virtio-net.ko" => module("net_failover,ext4"),
                "k/net_failover.ko" => module("failover"),
                "k/a.ko" => module("b"),
                "k/b.ko" => module("a"),
                _ => module(""),
            })
        };
        Ok(modules.in_order(&wanted, read)?.into_iter().map(|module| module.name).collect())
    }

    #[test]
    fn modules_come_after_what_they_need_and_built_in_ones_not_at_all() {
        let expected = ["failover", "net_failover", "virtio_net"];
        assert_eq!(order(&["ext4", "virtio_net", "failover"]).expect("an order"), expected);
    }

    #[test]
    fn unknown_compressed_and_circular_modules_are_refused() {
        assert_eq!(order(&["nothing"]), Err(ModuleError::Unknown("nothing".into())));
        assert_eq!(order(&["c"]), Err(ModuleError::Compressed("k/c.ko.xz".into())));
        assert!(matches!(order(&["a"]), Err(ModuleError::Circle(_))));
    }

    #[test]
    fn a_signature_is_cut_off_and_nothing_else() {
        let mut signed = b"module".to_vec();
        signed.extend(b"SIG");
        signed.extend([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        signed.extend(SIGNATURE_END);
        assert_eq!(without_signature(&signed), b"module");
        assert_eq!(without_signature(b"module"), b"module");
        assert_eq!(without_signature(SIGNATURE_END), SIGNATURE_END);
    }
}
