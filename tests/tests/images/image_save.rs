//! Saved images: how other tools read the archives, and what an interrupted save leaves.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tests::images::{busybox, write_root};
use tests::registry::{self, Registry};
use tests::{Burrow, bridge_path, eventually, have, have_or_skip};

const TOOLS: [&str; 9] = ["sh", "cat", "ls", "rm", "ln", "chmod", "mkdir", "echo", "chown"];
/// What a recipe does to files: everything that a layer can say.
const RECIPE: &str = "FROM base\n\
    COPY --chown=7:8 --chmod=4750 own /srv/deep/own\n\
    RUN rm /data/gone && rm -r /data/whole && ln /data/kept /data/twin && ln -s kept /data/link && \
    chmod 1777 /data && echo made > /data/made\n\
    CMD [\"cat\", \"/data/made\"]\n";

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// A store with `base`, and `made` of that by a recipe.
fn place() -> Option<Burrow> {
    let burrow = Burrow::new();
    fill(&burrow).then_some(burrow)
}

fn fill(burrow: &Burrow) -> bool {
    let Some(busybox) = busybox() else { return false };
    let root = burrow.scratch().join("base");
    write_root(&root, &busybox, &TOOLS);
    fs::create_dir_all(root.join("data/whole/below")).unwrap();
    for file in ["gone", "kept", "whole/below/x"] {
        fs::write(root.join("data").join(file), format!("old {file}\n")).unwrap();
    }
    if have("python3") {
        let set = "import os, sys; os.setxattr(sys.argv[1], 'user.note', b'said\\0so')";
        let stored = root.join("data/kept");
        // Not every file system has any.
        let _ =
            Command::new("python3").args(["-c", set]).arg(stored).stderr(Stdio::null()).status();
    }
    // An archive has attributes, which a directory that is imported does not keep.
    let archive = burrow.scratch().join("base.tar");
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--numeric-owner", "--owner=0", "--group=0", "-C"]).arg(&root);
    ran(tar.arg("-cf").arg(&archive).arg("."));
    burrow.ok(&["image", "import", archive.to_str().unwrap(), "--name", "base"]);
    let context = burrow.scratch().join("context");
    fs::create_dir(&context).unwrap();
    fs::write(context.join("Dockerfile"), RECIPE).unwrap();
    fs::write(context.join("own"), "own\n").unwrap();
    burrow.ok(&["image", "build", "-q", "-t", "made", context.to_str().unwrap()]);
    true
}

fn inspect(burrow: &Burrow, image: &str) -> Value {
    serde_json::from_str(&burrow.ok(&["image", "inspect", image])).unwrap()
}

fn hex(digest: &Value) -> String {
    digest.as_str().unwrap().trim_start_matches("sha256:").to_owned()
}

/// Every path with its mode, owner, attributes, links and content, as the archive of a program that is
/// none of ours; times of directories that nobody describes are those of their making.
fn files(tree: &Path) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--sort=name", "--numeric-owner", "--mtime=@0"]);
    // The program would write its own number, and when a file was read.
    tar.arg("--pax-option=exthdr.name=%d/x/%f,delete=atime,delete=ctime");
    ran(tar.arg("-C").arg(tree).args(["-cf", "-", "."])).stdout
}

fn root_of(burrow: &Burrow, image: &str) -> PathBuf {
    let digest = hex(&inspect(burrow, image)["digest"]);
    burrow.state().join("images/roots").join(digest).join("tree")
}

fn save(burrow: &Burrow, images: &[&str], file: &str, more: &[&str]) -> PathBuf {
    let path = burrow.scratch().join(file);
    let to = ["-o", path.to_str().unwrap()];
    burrow.ok(&[&["image", "save"], images, &to, more].concat());
    path
}

/// Other files in the directory of a file that will be made.
fn beside(path: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
    listed.map(|entry| entry.path()).filter(|one| one != path).collect()
}

#[test]
fn a_saved_image_is_the_same_in_another_store() {
    let Some(burrow) = place() else { return };
    let archive = save(&burrow, &["made", "base"], "both.tar", &[]);
    let mode = fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = Burrow::new();
    other.ok(&["image", "import", archive.to_str().unwrap()]);
    for name in ["made", "base"] {
        let (here, there) = (inspect(&burrow, name), inspect(&other, name));
        assert_eq!(here["digest"], there["digest"], "{name}");
        assert_eq!(here["layers"], there["layers"], "{name}");
        assert!(files(&root_of(&burrow, name)) == files(&root_of(&other, name)), "{name}");
    }
    assert_eq!(other.ok(&["run", "--image", "made"]), "made\n");
    // By a digest there is no name; by another name that one alone.
    let digest = inspect(&burrow, "made")["digest"].as_str().unwrap().to_owned();
    let nameless = save(&burrow, &[&digest], "nameless.tar", &[]);
    let refused = other.run(&["image", "import", nameless.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--name"), "{refused:?}");
    other.ok(&["image", "import", nameless.to_str().unwrap(), "--name", "again"]);
    assert_eq!(inspect(&other, "again")["digest"], digest.as_str());
}

#[test]
fn two_archives_of_the_same_images_are_the_same_bytes() {
    let Some(burrow) = place() else { return };
    for form in ["oci", "docker"] {
        let names = ["base", "made", "made:latest"];
        let one = save(&burrow, &names, "one.tar", &["--format", form]);
        let other = burrow.run(&[&["image", "save", "--format", form], &names[..]].concat());
        assert!(other.status.success(), "{other:?}");
        assert!(fs::read(&one).unwrap() == other.stdout, "{form}");
        // The old file is replaced by the complete new one, and nothing lies beside it.
        let before = beside(&one);
        save(&burrow, &["base"], "one.tar", &["--format", form]);
        assert!(fs::read(&one).unwrap().len() < other.stdout.len());
        assert_eq!(beside(&one), before);
    }
}

/// Unpacks the image of an archive with programs of others, and gives its root.
fn unpacked(burrow: &Burrow, archive: &str, name: &str) -> PathBuf {
    let layout = burrow.scratch().join(format!("{name}-layout"));
    let image = format!("{}:x", layout.display());
    ran(Command::new("skopeo")
        .args(["--insecure-policy", "copy", "-q", archive])
        .arg(format!("oci:{image}")));
    let bundle = burrow.scratch().join(format!("{name}-bundle"));
    let mut umoci = Command::new("umoci");
    umoci.arg("unpack").args((!nix::unistd::geteuid().is_root()).then_some("--rootless"));
    ran(umoci.args(["--image", &image]).arg(&bundle));
    bundle.join("rootfs")
}

#[test]
fn programs_of_others_take_what_was_built_committed_and_pulled() {
    if !(have_or_skip("umoci") && registry::is_here()) {
        return;
    }
    let burrow = Burrow::serving();
    if !fill(&burrow) {
        return;
    }
    burrow.ok(&["start", "--name", "work", "--image", "made"]);
    let script = "echo more > /data/more && rm /data/twin && chmod 700 /srv/deep";
    burrow.ok(&["exec", "work", "--", "sh", "-c", script]);
    burrow.ok(&["image", "commit", "work", "team/ready:1"]);
    let archive = save(&burrow, &["made"], "pushed.tar", &[]);
    let registry = Registry::start("");
    let pulled = format!("{}/team/made:2", registry.host());
    // The archive has compressed layers.
    ran(Command::new("skopeo")
        .args(["--insecure-policy", "copy", "-q", "--dest-tls-verify=false"])
        .arg(format!("oci-archive:{}", archive.display()))
        .arg(format!("docker://{pulled}")));
    burrow.ok(&["image", "pull", "--quiet", &pulled]);
    for (name, tag) in [("made", "latest"), ("team/ready:1", "1"), (pulled.as_str(), "2")] {
        let own = tag.to_owned();
        let archive = save(&burrow, &[name], &format!("{own}.tar"), &[]);
        let oci = format!("oci-archive:{}:{tag}", archive.display());
        let shown = ran(Command::new("skopeo").args(["inspect", &oci])).stdout;
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown["Digest"], inspect(&burrow, name)["digest"], "{name}");
        let expected = files(&root_of(&burrow, name));
        assert!(files(&unpacked(&burrow, &oci, &format!("{own}-oci"))) == expected, "{name}");
        let archive = save(&burrow, &[name], &format!("{own}-d.tar"), &["--format", "docker"]);
        let docker = format!("docker-archive:{}", archive.display());
        assert!(files(&unpacked(&burrow, &docker, &format!("{own}-docker"))) == expected, "{name}");
        // Docker's form has the configuration as it is, and comes back with the names.
        let other = Burrow::new();
        other.ok(&["image", "import", archive.to_str().unwrap()]);
        assert_eq!(inspect(&other, name)["config"], inspect(&burrow, name)["config"]);
        assert!(files(&root_of(&other, name)) == expected, "{name}");
    }
}

#[test]
fn an_archive_goes_from_one_host_to_another_through_a_pipe() {
    let Some(burrow) = place() else { return };
    let other = Burrow::new();
    let mut saving = burrow.command(&["image", "save", "made"]);
    let mut saving = saving.stdout(Stdio::piped()).spawn().unwrap();
    let mut importing = other.command(&["image", "import", "/dev/stdin"]);
    importing.stdin(saving.stdout.take().unwrap());
    ran(&mut importing);
    assert!(saving.wait().unwrap().success());
    assert_eq!(inspect(&other, "made")["digest"], inspect(&burrow, "made")["digest"]);
}

#[test]
fn a_layer_that_came_compressed_is_called_so() {
    let Some(burrow) = place() else { return };
    let packed = burrow.scratch().join("packed.tar.gz");
    let archive = fs::File::open(burrow.scratch().join("base.tar")).unwrap();
    let gzip = ran(Command::new("gzip").arg("-c").stdin(archive)).stdout;
    fs::write(&packed, gzip).unwrap();
    burrow.ok(&["image", "import", packed.to_str().unwrap(), "--name", "packed"]);
    let digest = hex(&inspect(&burrow, "packed")["digest"]);
    let manifest = fs::read(burrow.state().join("images/sha256").join(digest)).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let kind = manifest["layers"][0]["mediaType"].as_str().unwrap();
    assert!(kind.ends_with(".tar+gzip"), "{kind}");
    if have_or_skip("skopeo") && have_or_skip("umoci") {
        let archive = save(&burrow, &["packed"], "p.tar", &[]);
        let root = unpacked(&burrow, &format!("oci-archive:{}", archive.display()), "p");
        assert!(files(&root) == files(&root_of(&burrow, "base")));
    }
}

/// What a save says that must not succeed, with a file there that it must not touch.
fn refused(burrow: &Burrow, command: &mut Command) -> String {
    let path = burrow.scratch().join("out/made.tar");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "before", "{stderr}");
    assert!(beside(&path).is_empty(), "{stderr}");
    stderr
}

#[test]
fn an_archive_that_is_not_made_leaves_nothing_and_takes_nothing_away() {
    let Some(burrow) = place() else { return };
    let path = burrow.scratch().join("out/made.tar");
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, "before").unwrap();
    let path = path.to_str().unwrap();
    let line = ["image", "save", "-o", path];
    let message = refused(&burrow, &mut burrow.command(&[&line[..], &["made", "nobody"]].concat()));
    assert!(message.contains("nobody"), "{message}");
    // A disk is full where files may not grow.
    let mut full = burrow.command(&[]);
    full = {
        let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(bridge_path()).args(line).arg("made");
        let set = full.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.envs(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
        shell
    };
    let message = refused(&burrow, &mut full);
    assert!(message.contains("cannot write") && message.contains("made.tar"), "{message}");
    let full = burrow.run(&["image", "save", "made", "-o", "/dev/full"]);
    let message = String::from_utf8_lossy(&full.stderr);
    assert!(!full.status.success() && message.contains("No space left"), "{message}");
    // A disk has forgotten something of a layer.
    let layer = hex(&inspect(&burrow, "made")["layers"][0]["digest"]);
    let blob = burrow.state().join("images/sha256").join(&layer);
    let whole = fs::read(&blob).unwrap();
    let mut broken = whole.clone();
    broken[whole.len() / 2] ^= 1;
    fs::write(&blob, &broken).unwrap();
    for form in ["oci", "docker"] {
        let line = [&line[..], &["made", "--format", form]].concat();
        let message = refused(&burrow, &mut burrow.command(&line));
        assert!(message.contains(&layer), "{form}: {message}");
    }
    fs::write(&blob, &whole[..whole.len() - 1]).unwrap();
    let message = refused(&burrow, &mut burrow.command(&[&line[..], &["made"]].concat()));
    assert!(message.contains(&layer), "{message}");
}

#[test]
fn an_interrupted_save_leaves_nothing() {
    let Some(burrow) = place() else { return };
    let path = burrow.scratch().join("out/made.tar");
    fs::create_dir(path.parent().unwrap()).unwrap();
    // A layer that comes as slowly as this test wants it.
    let layer = hex(&inspect(&burrow, "made")["layers"][0]["digest"]);
    let blob = burrow.state().join("images/sha256").join(layer);
    fs::remove_file(&blob).unwrap();
    nix::unistd::mkfifo(&blob, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut command = burrow.command(&["image", "save", "made", "-o", path.to_str().unwrap()]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut feed = None;
        eventually("the layer is asked for", || {
            let mut options = fs::File::options();
            options.write(true).custom_flags(libc::O_NONBLOCK);
            feed = options.open(&blob).ok();
            feed.is_some()
        });
        let mut feed = feed.unwrap();
        feed.write_all(&[0; 4096]).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let mut ended = None;
        eventually("it ends", || {
            // It checks for signals between two pieces.
            let _ = feed.write(&[0; 512]);
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        let ended = ended.unwrap();
        let code = ended.code().or(ended.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(128 + signal as i32), "{signal}");
        assert!(!path.exists() && beside(&path).is_empty(), "{signal}: {:?}", beside(&path));
    }
}

#[test]
fn a_terminal_gets_no_archive_and_a_reader_may_go() {
    let Some(burrow) = place() else { return };
    let mut saving = burrow.command(&["image", "save", "made"]);
    let mut saving = saving.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(saving.stdout.take());
    let output = saving.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(141), Vec::new()));
    if !have_or_skip("script") {
        return;
    }
    let bridge = burrow.command(&[]);
    let mut script = Command::new("script");
    let line = format!("{} image save made", bridge_path().display());
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::null());
    let set = bridge.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = script.envs(set).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && stdout.contains("name a file with -o"), "{stdout}");
}
