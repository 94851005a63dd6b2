//! The builder as its users run it: `base` needs no mirror, and is built, verified and damaged here.

use std::path::{Path, PathBuf};

use rootfs::builder::{BuildRequest, BuildResult, build};
use rootfs::verify::verify;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// A program that can say its release, in the place of the agent: a static one, if one is there.
fn agent(directory: &Path, release: &str) -> PathBuf {
    let path = directory.join("agent");
    std::fs::write(&path, format!("#!/bin/sh\necho guest-agent {release}\n")).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("our own file");
    path
}

fn built(order: &BuildRequest) -> Vec<BuildResult> {
    build(order, &mut |_| {}).expect("base needs nothing but the agent")
}

fn order(directory: &Path) -> BuildRequest {
    BuildRequest {
        source: source(),
        out: directory.join("images"),
        agent: agent(directory, "1"),
        names: vec!["base".to_owned()],
    }
}

#[test]
fn base_is_built_once_and_again_only_for_another_agent() {
    let directory = tempfile::tempdir().expect("a directory");
    let order = order(directory.path());
    assert!(built(&order)[0].changed);
    let image = order.out.join("base.erofs");
    let first = std::fs::read(&image).expect("an image");
    assert!(!built(&order)[0].changed);
    std::fs::remove_file(&image).expect("our own file");
    assert!(built(&order)[0].changed, "what is gone is built again");
    assert_eq!(std::fs::read(&image).expect("an image"), first, "the same bytes");
    agent(directory.path(), "2");
    assert!(built(&order)[0].changed);
    assert_ne!(std::fs::read(&image).expect("an image"), first);
}

#[test]
fn verify_finds_an_agent_that_is_no_program_and_every_changed_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let order = order(directory.path());
    built(&order);
    let wrong = verify(&order.out, &mut |_| {}).expect("readable files");
    let expected = ["base.json: the agent: not a 64-bit little-endian ELF file"];
    assert_eq!(wrong, expected, "a script is no agent, and nothing else is wrong");
    let image = order.out.join("base.erofs");
    let mut bytes = std::fs::read(&image).expect("an image");
    let root_only = bytes.windows(5).position(|text| text == b"root:").expect("the accounts");
    bytes[root_only] = b'R';
    std::fs::write(&image, bytes).expect("our own file");
    let wrong = verify(&order.out, &mut |_| {}).expect("readable files");
    assert!(wrong.iter().any(|line| line.contains("the digest")), "{wrong:?}");
    assert!(wrong.iter().any(|line| line.contains("differ from the manifest")), "{wrong:?}");
}

#[test]
fn verify_goes_on_behind_an_image_that_is_gone_or_of_another_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let order = order(directory.path());
    built(&order);
    for name in ["also", "short", "gone"] {
        let text = std::fs::read_to_string(order.out.join("base.json")).expect("a manifest");
        let text = text.replace("base.erofs", &format!("{name}.erofs"));
        std::fs::write(order.out.join(format!("{name}.json")), text).expect("a file");
        std::fs::copy(order.out.join("base.erofs"), order.out.join(format!("{name}.erofs")))
            .expect("a file");
    }
    std::fs::remove_file(order.out.join("gone.erofs")).expect("our own file");
    std::fs::write(order.out.join("short.erofs"), "short").expect("our own file");
    std::fs::create_dir(order.out.join("broken.json")).expect("a directory");
    let mut seen = Vec::new();
    let wrong = verify(&order.out, &mut |name| seen.push(name.to_owned())).expect("a directory");
    assert_eq!(seen, ["also", "base", "broken", "gone", "short"]);
    for start in [
        "also.json: the agent",
        "broken.json: ",
        "gone.json: gone.erofs: No such",
        "short.json: short.erofs has 5 bytes",
    ] {
        let count = wrong.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!(count, 1, "{start}: {wrong:?}");
    }
}

/// An order with its own source, whose recipe contains exactly this.
fn order_with(directory: &Path, limits: &str) -> BuildRequest {
    let source = directory.join("source");
    std::fs::create_dir_all(source.join("recipes")).expect("a directory");
    let recipe = format!("summary = \"x\"\nsuite = \"bookworm\"\n{limits}\n");
    std::fs::write(source.join("recipes/base.toml"), recipe).expect("a file");
    BuildRequest { source, ..order(directory) }
}

#[test]
fn a_refused_image_leaves_the_one_before_it_and_its_manifest() {
    let directory = tempfile::tempdir().expect("a directory");
    let order = order_with(directory.path(), "size_max_mib = 4");
    assert!(built(&order)[0].changed);
    let files = || {
        ["base.erofs", "base.json"].map(|file| std::fs::read(order.out.join(file)).expect("a file"))
    };
    let before = files();
    order_with(directory.path(), "size_max_mib = 1");
    agent(directory.path(), &"x".repeat(2 << 20));
    let error = build(&order, &mut |_| {}).expect_err("too large");
    assert!(format!("{error:#}").contains("its recipe allows 1048576"), "{error:#}");
    assert!(files() == before, "neither the image nor the manifest has changed");
    let left = std::fs::read_dir(&order.out).expect("ours").filter_map(Result::ok);
    let unfinished = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "new"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn an_image_of_the_right_size_with_other_bytes_is_built_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let order = order(directory.path());
    built(&order);
    let image = order.out.join("base.erofs");
    let first = std::fs::read(&image).expect("an image");
    let mut other = first.clone();
    *other.last_mut().expect("bytes") ^= 1;
    std::fs::write(&image, other).expect("our own file");
    assert!(built(&order)[0].changed);
    assert!(std::fs::read(&image).expect("an image") == first);
}

#[test]
fn a_missing_agent_and_an_unknown_recipe_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut order = order(directory.path());
    order.names = vec!["nothing".to_owned()];
    let error = build(&order, &mut |_| {}).expect_err("no such recipe");
    assert!(
        format!("{error:#}").contains("no recipe nothing; the known recipes are: base"),
        "{error:#}"
    );
    order.agent = directory.path().join("none");
    let error = build(&order, &mut |_| {}).expect_err("no agent");
    assert!(format!("{error:#}").contains("./do build"), "{error:#}");
}
