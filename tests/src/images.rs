//! Hand-made images: a root with a static busybox, its archive, and the output of `docker save`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::skip;

/// A program that needs nothing else, with the tools of a small system in it.
pub fn busybox() -> Option<PathBuf> {
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        skip("there is no static busybox here");
    }
    found
}

/// A root with busybox under these names, and nothing else.
///
/// # Panics
/// When it cannot be written.
pub fn write_root(root: &Path, busybox: &Path, links: &[&str]) {
    fs::create_dir_all(root.join("bin")).expect("a root");
    fs::copy(busybox, root.join("bin/busybox")).expect("busybox");
    for link in links {
        symlink("busybox", root.join("bin").join(link)).expect("a link");
    }
}

/// The archive of a directory.
///
/// # Panics
/// When `tar` cannot make it.
pub fn tar(directory: &Path, to: &Path, more: &[&str]) {
    let mut command = Command::new("tar");
    command.args(["--numeric-owner", "--owner=0", "--group=0"]).args(more);
    command.arg("-C").arg(directory).arg("-cf").arg(to).arg(".");
    assert!(command.status().expect("tar runs").success());
}

/// The output of `docker save` for one image: its layers, the lowest first, and its settings for
/// programs.
///
/// # Panics
/// When it cannot be written.
pub fn write_saved(to: &Path, name: &str, layers: &[PathBuf], config: &Value) -> PathBuf {
    write_all_saved(to, layers, &[(name.to_owned(), config.clone())])
}

/// The same of several images that share their layers.
///
/// # Panics
/// When it cannot be written.
pub fn write_all_saved(to: &Path, layers: &[PathBuf], images: &[(String, Value)]) -> PathBuf {
    let directory = to.join("saved");
    fs::create_dir_all(&directory).expect("a directory");
    let mut names = Vec::new();
    let mut diff_ids = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("{number}.tar");
        fs::copy(layer, directory.join(&name)).expect("a layer");
        diff_ids.push(format!("sha256:{}", file_sha256(layer)));
        names.push(name);
    }
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut list = Vec::new();
    for (number, (name, config)) in images.iter().enumerate() {
        let file = format!("config{number}.json");
        let document = json!({
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        fs::write(directory.join(&file), document.to_string()).expect("a configuration");
        list.push(json!({"Config": file, "RepoTags": [name], "Layers": names}));
    }
    fs::write(directory.join("manifest.json"), json!(list).to_string()).expect("a list");
    let archive = to.join("saved.tar");
    tar(&directory, &archive, &[]);
    archive
}

fn file_sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.split(' ').next().expect("a digest").to_owned()
}
