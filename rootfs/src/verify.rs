//! Verifies images: opens each one again and compares it with its manifest.
//!
//! `cli` calls it after a build. It continues after a failure and returns all of them.

use std::path::Path;

use crate::compose::{AGENT_PATH, INIT_PATH, dangling_links, set_id_files};
use crate::digest::Sha256;
use crate::elf::Elf;
use crate::erofs;
use crate::listing;
use crate::manifest::{Agent, ImageManifest, KERNEL_MANIFEST, KernelManifest, Output, SetId};
use crate::tree::{ContentReader, Kind, NodeId, Tree, shown};

/// Where programs are searched.
const PATH: [&str; 2] = ["usr/bin", "usr/sbin"];

/// Everything that is wrong with the images of a directory; their names are given to `seen`.
pub fn verify(directory: &Path, seen: &mut dyn FnMut(&str)) -> std::io::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut names: Vec<String> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            Path::new(name)
                .extension()
                .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
        })
        .collect();
    names.sort_unstable();
    for name in names {
        let mut found = Findings::default();
        manifest(directory, &name, &mut found);
        seen(name.trim_end_matches(".json"));
        wrong.extend(found.0.into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(wrong)
}

/// One manifest and its files.
fn manifest(directory: &Path, name: &str, found: &mut Findings) {
    let text = match std::fs::read(directory.join(name)) {
        Ok(text) => text,
        Err(error) => return found.add(&error),
    };
    if name == KERNEL_MANIFEST {
        match serde_json::from_slice(&text) {
            Ok(manifest) => kernel(directory, &manifest, found),
            Err(error) => found.add(&error),
        }
    } else {
        match serde_json::from_slice(&text) {
            Ok(manifest) => image(directory, &manifest, found),
            Err(error) => found.add(&error),
        }
    }
}

#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, what: &dyn std::fmt::Display) {
        self.0.push(what.to_string());
    }

    /// The content of a file, or the finding that it cannot be read.
    fn read<T, E: std::fmt::Display>(&mut self, file: &str, result: Result<T, E>) -> Option<T> {
        result.inspect_err(|error| self.0.push(format!("{file}: {error}"))).ok()
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

/// Whether a file is as its manifest says; one of another size is not read at all.
fn output(directory: &Path, output: &Output, found: &mut Findings) -> bool {
    let Output { file, bytes, sha256 } = output;
    let path = directory.join(file);
    let Some(there) = found.read(file, std::fs::metadata(&path)) else { return false };
    if there.len() != *bytes {
        found.add(&format!("{file} has {} bytes, not {bytes}", there.len()));
        return false;
    }
    let Some((there, _)) = found.read(file, Sha256::of_file(&path)) else { return false };
    found.check(there == *sha256, || {
        format!("{file} has the digest {there}, which differs from its manifest")
    });
    true
}

fn image(directory: &Path, manifest: &ImageManifest, found: &mut Findings) {
    found.check(manifest.image.bytes <= manifest.size_max_bytes, || {
        format!("{} bytes are more than {}", manifest.image.bytes, manifest.size_max_bytes)
    });
    if !output(directory, &manifest.image, found) {
        return;
    }
    let file = &manifest.image.file;
    let Some(tree) = found.read(file, erofs::read(&directory.join(file))) else { return };
    if let Some(digest) = found.read(file, listing::digest(&tree)) {
        found.check(digest == (manifest.files, manifest.files_sha256), || {
            "the files differ from the manifest".to_owned()
        });
    }
    agent(&tree, &manifest.agent, found);
    found.check(tree.resolve(INIT_PATH.as_bytes()).is_ok(), || format!("no /{INIT_PATH}"));
    for path in dangling_links(&tree) {
        found.check(false, || format!("/{} leads nowhere", shown(&path)));
    }
    let set_id = set_id_files(&tree).into_iter();
    let set_id: Vec<SetId> =
        set_id.map(|(path, mode)| SetId { path, mode: format!("{mode:o}") }).collect();
    found.check(set_id == manifest.set_id, || {
        "the set-id files differ from the manifest".to_owned()
    });
    for (path, id) in tree.walk_all() {
        let node = tree.node(id);
        let writable = node.metadata.mode & 0o1002 == 0o002;
        found.check(!writable || matches!(node.kind, Kind::Symlink(_)), || {
            format!("/{} is writable by everyone", shown(&path))
        });
    }
    for program in &manifest.programs {
        let is_program = |id: NodeId| {
            let node = tree.node(id);
            matches!(node.kind, Kind::File(_)) && node.metadata.mode & 0o111 == 0o111
        };
        let there = PATH.iter().any(|directory| {
            tree.resolve(format!("{directory}/{program}").as_bytes()).is_ok_and(is_program)
        });
        found.check(there, || format!("there is no program {program}"));
    }
}

fn agent(tree: &Tree, agent: &Agent, found: &mut Findings) {
    let node = tree.resolve(AGENT_PATH.as_bytes()).map(|id| tree.node(id));
    let Some((metadata, content)) = node.ok().and_then(|node| match &node.kind {
        Kind::File(content) => Some((node.metadata, content)),
        _ => None,
    }) else {
        return found.add(&"there is no agent");
    };
    found.check((metadata.mode, metadata.uid, metadata.gid) == (0o755, 0, 0), || {
        format!("the agent has the mode {:o}, owned by {}", metadata.mode, metadata.uid)
    });
    found.check(content.bytes() == agent.bytes, || {
        "the agent's size differs from the manifest".to_owned()
    });
    let read = ContentReader::new().read(content);
    let Some(bytes) = found.read("the agent", read) else { return };
    found.check(Sha256::of(&bytes) == agent.sha256, || {
        "the agent's digest differs from the manifest".to_owned()
    });
    match Elf::parse(&bytes).and_then(|elf| elf.is_static()) {
        Ok(is_static) => found.check(is_static, || "the agent is not static".to_owned()),
        Err(error) => found.add(&format!("the agent: {error}")),
    }
}

fn kernel(directory: &Path, manifest: &KernelManifest, found: &mut Findings) {
    output(directory, &manifest.vmlinuz, found);
    output(directory, &manifest.initramfs, found);
    let bytes = manifest.vmlinuz.bytes + manifest.initramfs.bytes;
    found.check(bytes <= manifest.size_max_bytes, || {
        format!("{bytes} bytes are more than {}", manifest.size_max_bytes)
    });
    let file = &manifest.vmlinux.file;
    if output(directory, &manifest.vmlinux, found)
        && let Some(vmlinux) = found.read(file, std::fs::read(directory.join(file)))
    {
        found.check(Elf::parse(&vmlinux).is_ok(), || "vmlinux is not an ELF file".to_owned());
    }
}
