//! Precompiles Python's modules, as the scripts of Debian's packages would do: otherwise every
//! start of an interpreter on a read-only root compiles its imports, for seconds.
//!
//! The image's own Python compiles them, with the loader and the libraries of the image, so that the host
//! needs no Python. It is the only program of a package that runs here, pinned like all. The result is a
//! separate layer, cached by the digests of its input.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};

use super::write_whole;
use crate::compose::Layer;
use crate::debian::package::{Entry, Kind as Packed};
use crate::digest::{Hasher, Sha256};
use crate::tree::{ContentReader, Kind, Tree, shown};

/// What the interpreter needs to run, and what it compiles: directories of the image.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
const PACKAGES: &str = "usr/lib/python3";
const PROGRAMS: &str = "usr/bin/python3";

/// The layer's name, in place of a package's.
const PACKAGE: &str = "python's compiled modules";

/// The suffixes of modules and of compiled ones.
const SOURCE: &str = ".py";
const COMPILED: &str = ".pyc";

/// The layer of compiled modules, when the tree has a Python.
pub(super) fn layer(
    cache: &Path,
    tree: &Tree,
    time_s: u64,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Layer>> {
    let files: Vec<(String, &Kind)> = tree
        .walk_all()
        .into_iter()
        .map(|(path, id)| (shown(&path), &tree.node(id).kind))
        .filter(|(path, kind)| {
            let wanted = [LIBRARIES, PACKAGES, PROGRAMS];
            !matches!(kind, Kind::Directory(_))
                && wanted.iter().any(|start| path.starts_with(start))
        })
        .collect();
    let is_interpreter = |(path, kind): &&(String, &Kind)| {
        let version = path.strip_prefix("usr/bin/python3.");
        matches!(kind, Kind::File(_))
            && version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let Some((interpreter, _)) = files.iter().find(is_interpreter) else { return Ok(None) };
    let key = key(&files, time_s)?;
    let (list, contents) =
        (cache.join(format!("python-{key}.json")), cache.join(format!("python-{key}.contents")));
    let modules = modules(&files, interpreter);
    if let Some(entries) = known(&list, &modules) {
        return Ok(Some(Layer { package: PACKAGE.to_owned(), entries, contents: contents.into() }));
    }
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        say(
            "Python's modules are not precompiled: only x86-64 Linux can run the image's interpreter",
        );
        return Ok(None);
    }
    say("compiling Python's modules");
    let scratch = Scratch(cache.join(format!("python-{key}.scratch")));
    let entries = compile(&scratch.0, &files, interpreter, time_s, &contents)?;
    if let Some(module) = without(&modules, &entries) {
        bail!("the image's Python did not compile {module}");
    }
    let text = serde_json::to_vec(&entries)?;
    write_whole(&list, |out| Ok(out.write_all(&text)?))?;
    Ok(Some(Layer { package: PACKAGE.to_owned(), entries, contents: contents.into() }))
}

/// The directories whose modules are compiled.
fn sources(interpreter: &str) -> [String; 2] {
    let version = interpreter.trim_start_matches("usr/bin/");
    [format!("usr/lib/{version}"), format!("{PACKAGES}/dist-packages")]
}

/// Modules and the names of their compiled files.
fn modules(files: &[(String, &Kind)], interpreter: &str) -> Vec<(String, String)> {
    let tag = interpreter.replace("usr/bin/python", "cpython-").replace('.', "");
    let sources = sources(interpreter).map(|source| source + "/");
    let is_module = |(path, kind): &&(String, &Kind)| {
        matches!(kind, Kind::File(_)) && sources.iter().any(|source| path.starts_with(source))
    };
    files
        .iter()
        .filter(is_module)
        .filter_map(|(path, _)| {
            let (directory, name) = path.strip_suffix(SOURCE)?.rsplit_once('/')?;
            Some((path.clone(), format!("{directory}/__pycache__/{name}.{tag}{COMPILED}")))
        })
        .collect()
}

/// The first module that was not compiled. No exceptions are pinned: in every recipe all compile.
fn without<'a>(modules: &'a [(String, String)], entries: &[Entry]) -> Option<&'a str> {
    let there: HashSet<&str> = entries.iter().map(|entry| &*entry.path).collect();
    let missing = modules.iter().find(|(_, compiled)| !there.contains(&**compiled));
    missing.map(|(module, _)| &**module)
}

/// The result of an earlier build, if it is complete.
fn known(list: &Path, modules: &[(String, String)]) -> Option<Vec<Entry>> {
    let entries: Vec<Entry> = serde_json::from_slice(&std::fs::read(list).ok()?).ok()?;
    without(modules, &entries).is_none().then_some(entries)
}

/// A directory that is gone when it has served.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it stays, it is in nobody's way, and the next build begins by removing it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(files: &[(String, &Kind)], time_s: u64) -> Result<Sha256> {
    let mut hasher = Hasher::new();
    let mut contents = ContentReader::new();
    hasher.part(&time_s.to_le_bytes());
    for (path, kind) in files {
        hasher.part(path.as_bytes());
        match kind {
            Kind::File(content) => hasher.part(&contents.sha256(content)?.0),
            Kind::Symlink(target) => hasher.part(target),
            _ => {}
        }
    }
    Ok(hasher.finish())
}

fn compile(
    scratch: &Path,
    files: &[(String, &Kind)],
    interpreter: &str,
    time_s: u64,
    contents: &Path,
) -> Result<Vec<Entry>> {
    if scratch.exists() {
        std::fs::remove_dir_all(scratch)?;
    }
    std::fs::create_dir_all(scratch)?;
    let scratch = std::fs::canonicalize(scratch)?;
    std::os::unix::fs::symlink("usr/lib", scratch.join("lib"))?;
    extract(&scratch, files, time_s)?;
    let sources = sources(interpreter);
    // One process in a fixed order: the bytes depend on what it has compiled before.
    let mut command = Command::new(scratch.join(LOADER));
    command.arg("--library-path").arg(scratch.join(LIBRARIES));
    command.arg(scratch.join(interpreter));
    command.args(["-s", "-S", "-m", "compileall", "-q", "-f", "--invalidation-mode", "timestamp"]);
    command.arg("-s").arg(&scratch).args(["-p", "/"]);
    command.args(sources.iter().map(|path| scratch.join(path)).filter(|path| path.exists()));
    command.env_clear().env("PYTHONHOME", scratch.join("usr")).env("PYTHONHASHSEED", "0");
    command.env("LC_ALL", "C.UTF-8").current_dir(&scratch).stdin(Stdio::null());
    let output = command.output().context("running the image's Python")?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        bail!(
            "the image's Python did not compile its modules ({}): {}",
            output.status,
            text.trim()
        );
    }
    let mut compiled = Vec::new();
    for source in sources {
        find(&scratch, &scratch.join(source), &mut compiled)?;
    }
    compiled.sort_unstable();
    write_whole(contents, |out| {
        let mut offset = 0;
        let mut entries = Vec::new();
        for path in compiled {
            let bytes = std::fs::read(scratch.join(&path))?;
            out.write_all(&bytes)?;
            let sha256 = Sha256::of(&bytes);
            let bytes = bytes.len() as u64;
            let kind = Packed::File { offset, bytes, sha256 };
            entries.push(Entry { path, mode: 0o644, uid: 0, gid: 0, kind });
            offset += bytes;
        }
        Ok(entries)
    })
}

/// Writes files where the interpreter can run; the tree ensures that no name leads outside.
fn extract(scratch: &Path, files: &[(String, &Kind)], time_s: u64) -> Result<()> {
    let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(time_s);
    let mut reader = ContentReader::new();
    for (path, kind) in files {
        let path = scratch.join(path);
        std::fs::create_dir_all(path.parent().expect("below the scratch directory"))?;
        match kind {
            Kind::File(content) => {
                let mut file = File::create(&path)?;
                reader.copy(content, 0, content.bytes(), &mut |bytes| file.write_all(bytes))?;
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                file.set_permissions(mode)?;
                file.set_modified(mtime)?;
            }
            Kind::Symlink(target) => {
                let target = std::str::from_utf8(target)?;
                let target = match target.strip_prefix('/') {
                    Some(absolute) => scratch.join(absolute),
                    None => target.into(),
                };
                std::os::unix::fs::symlink(target, &path)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The compiled modules below a directory, as paths of the image.
fn find(scratch: &Path, directory: &Path, found: &mut Vec<String>) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if entry?.is_dir() {
            find(scratch, &path, found)?;
        } else if let Some(name) = path.strip_prefix(scratch)?.to_str()
            && name.ends_with(COMPILED)
        {
            found.push(name.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Content;

    #[test]
    fn a_layer_that_lacks_a_module_is_made_again() {
        let module = Kind::File(Content::from_bytes("pass"));
        let link = Kind::Symlink(b"/etc/python3.11/sitecustomize.py".to_vec());
        let files = [
            ("usr/bin/python3.11", &module),
            ("usr/lib/python3.11/os.py", &module),
            ("usr/lib/python3.11/os.txt", &module),
            ("usr/lib/python3.11/sitecustomize.py", &link),
            ("usr/lib/python3.12/os.py", &module),
            ("usr/lib/python3/dist-packages/a/b.py", &module),
        ]
        .map(|(path, kind)| (path.to_owned(), kind));
        let modules = modules(&files, "usr/bin/python3.11");
        let [first, second] = &modules[..] else { panic!("two modules: {modules:?}") };
        assert_eq!(first.1, "usr/lib/python3.11/__pycache__/os.cpython-311.pyc");
        assert_eq!(second.1, "usr/lib/python3/dist-packages/a/__pycache__/b.cpython-311.pyc");

        let entry = |path: &str| {
            let kind = Packed::File { offset: 0, bytes: 0, sha256: Sha256::of(b"") };
            Entry { path: path.to_owned(), mode: 0o644, uid: 0, gid: 0, kind }
        };
        let directory = tempfile::tempdir().expect("a directory");
        let list = directory.path().join("list");
        let entries = [&*first.1, &second.1].map(entry);
        for (present, missing) in
            [(&entries[..], None), (&entries[..1], Some(&*second.0)), (&[], Some(&*first.0))]
        {
            assert_eq!(without(&modules, present), missing);
            let text = serde_json::to_vec(present).expect("entries");
            std::fs::write(&list, text).expect("a file");
            assert_eq!(known(&list, &modules).is_some(), missing.is_none());
        }
        std::fs::write(&list, "cut sh").expect("a file");
        assert!(known(&list, &modules).is_none());
    }

    #[test]
    fn an_interpreter_that_fails_or_dies_compiles_nothing() {
        for (end, reason) in [("exit 1", "exit status: 1"), ("kill -9 $$", "signal: 9")] {
            let directory = tempfile::tempdir().expect("a directory");
            let loader = format!(
                "#!/bin/sh\nmkdir -p usr/lib/python3.11/__pycache__\n\
                 echo > usr/lib/python3.11/__pycache__/os.cpython-311.pyc\n\
                 echo no room\n{end}\n"
            );
            let loader = Kind::File(Content::from_bytes(loader));
            let files = [(LOADER.to_owned(), &loader)];
            let (scratch, contents) =
                (directory.path().join("scratch"), directory.path().join("contents"));
            let error = compile(&scratch, &files, "usr/bin/python3.11", 0, &contents)
                .expect_err("it failed")
                .to_string();
            assert!(error.contains(reason) && error.contains("no room"), "{error}");
            assert!(!contents.exists());
        }
    }
}
