//! The builder as its users run it: `base` needs no mirror, and is built, verified and damaged here.

use std::path::{Path, PathBuf};

use rootfs::builder::{Built, Order, build};
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

fn built(order: &Order) -> Vec<Built> {
    build(order, &mut |_| {}).expect("base needs nothing but the agent")
}

fn order(directory: &Path) -> Order {
    Order {
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
    assert!(wrong.iter().any(|line| line.contains("not those of the manifest")), "{wrong:?}");
}

#[test]
fn a_missing_agent_and_an_unknown_recipe_are_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut order = order(directory.path());
    order.names = vec!["nothing".to_owned()];
    let error = build(&order, &mut |_| {}).expect_err("no such recipe");
    assert!(format!("{error:#}").contains("no recipe nothing; there are: base"), "{error:#}");
    order.agent = directory.path().join("none");
    let error = build(&order, &mut |_| {}).expect_err("no agent");
    assert!(format!("{error:#}").contains("just build"), "{error:#}");
}
