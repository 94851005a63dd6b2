//! Builds Burrow's microVM images: Debian packages and the agent become erofs images and an
//! initramfs, without root, mounts, dpkg or mkfs.
//!
//! This file is the table of contents. `rootfs`, the program, is [`cli`].

#![forbid(unsafe_code)]

pub mod builder;
pub mod cli;
pub mod compose;
pub mod cpio;
pub mod debian;
pub mod digest;
pub mod elf;
pub mod erofs;
pub mod fetch;
pub mod kernel;
pub mod listing;
pub mod lock;
pub mod manifest;
pub mod mirror;
pub mod recipe;
pub mod signature;
pub mod tree;
pub mod verify;

/// Says that a test does nothing here, and why; they are counted in `target/skips.log`.
#[cfg(test)]
fn skipped(reason: &str) {
    use std::io::Write as _;

    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("SKIP {name}: {reason}");
    let log = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/skips.log");
    let mut log = std::fs::File::options().create(true).append(true).open(log).expect("skips.log");
    writeln!(log, "{name}: {reason}").expect("skips.log can be written");
}
