//! Looks at images as a stranger would: opens each anew and holds it against its manifest.
//!
//! `cli` calls it after a build. It goes on after a failure and gives all of them.

use std::path::Path;

use crate::compose::{AGENT_PATH, INIT_PATH, dangling_links, set_id_files};
use crate::digest::Sha256;
use crate::elf::Elf;
use crate::erofs;
use crate::listing;
use crate::manifest::{Agent, ImageManifest, KERNEL_MANIFEST, KernelManifest, Output, SetId};
use crate::tree::{ContentReader, Kind, NodeId, Tree, shown};

/// Where programs are looked for.
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
        let text = std::fs::read(directory.join(&name))?;
        if name == KERNEL_MANIFEST {
            match serde_json::from_slice(&text) {
                Ok(manifest) => kernel(directory, &manifest, &mut found)?,
                Err(error) => found.add(&error),
            }
        } else {
            match serde_json::from_slice(&text) {
                Ok(manifest) => image(directory, &manifest, &mut found)?,
                Err(error) => found.add(&error),
            }
        }
        seen(name.trim_end_matches(".json"));
        wrong.extend(found.0.into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(wrong)
}

#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, what: &dyn std::fmt::Display) {
        self.0.push(what.to_string());
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

fn output(directory: &Path, output: &Output, found: &mut Findings) -> std::io::Result<()> {
    let (sha256, bytes) = Sha256::of_file(&directory.join(&output.file))?;
    found.check((sha256, bytes) == (output.sha256, output.bytes), || {
        format!(
            "{} has {bytes} bytes with the digest {sha256}, not as its manifest says",
            output.file
        )
    });
    Ok(())
}

fn image(directory: &Path, manifest: &ImageManifest, found: &mut Findings) -> std::io::Result<()> {
    output(directory, &manifest.image, found)?;
    found.check(manifest.image.bytes <= manifest.size_max_bytes, || {
        format!("{} bytes are more than {}", manifest.image.bytes, manifest.size_max_bytes)
    });
    let tree = match erofs::read(&directory.join(&manifest.image.file)) {
        Ok(tree) => tree,
        Err(error) => {
            found.add(&error);
            return Ok(());
        }
    };
    let digest = listing::digest(&tree)?;
    found.check(digest == (manifest.files, manifest.files_sha256), || {
        "the files are not those of the manifest".to_owned()
    });
    agent(&tree, &manifest.agent, found)?;
    found.check(tree.resolve(INIT_PATH.as_bytes()).is_ok(), || format!("no /{INIT_PATH}"));
    for path in dangling_links(&tree) {
        found.check(false, || format!("/{} leads nowhere", shown(&path)));
    }
    let set_id = set_id_files(&tree).into_iter();
    let set_id: Vec<SetId> =
        set_id.map(|(path, mode)| SetId { path, mode: format!("{mode:o}") }).collect();
    found.check(set_id == manifest.set_id, || {
        "other files run with others' rights than the manifest says".to_owned()
    });
    for (path, id) in tree.walk_all() {
        let node = tree.node(id);
        let writable = node.metadata.mode & 0o1002 == 0o002;
        found.check(!writable || matches!(node.kind, Kind::Symlink(_)), || {
            format!("everybody may write /{}", shown(&path))
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
    Ok(())
}

fn agent(tree: &Tree, agent: &Agent, found: &mut Findings) -> std::io::Result<()> {
    let node = tree.resolve(AGENT_PATH.as_bytes()).map(|id| tree.node(id));
    let Some((metadata, content)) = node.ok().and_then(|node| match &node.kind {
        Kind::File(content) => Some((node.metadata, content)),
        _ => None,
    }) else {
        found.add(&"there is no agent");
        return Ok(());
    };
    found.check((metadata.mode, metadata.uid, metadata.gid) == (0o755, 0, 0), || {
        format!("the agent has the mode {:o}, owned by {}", metadata.mode, metadata.uid)
    });
    let bytes = ContentReader::new().read(content)?;
    found.check(Sha256::of(&bytes) == agent.sha256, || "the agent is another one".to_owned());
    match Elf::parse(&bytes).and_then(|elf| elf.is_static()) {
        Ok(is_static) => found.check(is_static, || "the agent is not static".to_owned()),
        Err(error) => found.add(&format!("the agent: {error}")),
    }
    Ok(())
}

fn kernel(
    directory: &Path,
    manifest: &KernelManifest,
    found: &mut Findings,
) -> std::io::Result<()> {
    for file in [&manifest.vmlinuz, &manifest.vmlinux, &manifest.initramfs] {
        output(directory, file, found)?;
    }
    let bytes = manifest.vmlinuz.bytes + manifest.initramfs.bytes;
    found.check(bytes <= manifest.size_max_bytes, || {
        format!("{bytes} bytes are more than {}", manifest.size_max_bytes)
    });
    let vmlinux = std::fs::read(directory.join(&manifest.vmlinux.file))?;
    found.check(Elf::parse(&vmlinux).is_ok(), || "vmlinux is no ELF file".to_owned());
    Ok(())
}
