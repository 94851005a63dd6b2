//! Packages on their way from a mirror to layers: fetched as the lock says, unpacked once, kept.
//!
//! `CACHE/SHA256.deb` is a package as downloaded, `SHA256.contents` and `SHA256.json` its content.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};

use super::write_whole;
use crate::compose::Layer;
use crate::debian::package::{self, Entry};
use crate::digest::Sha256;
use crate::fetch::{Download, Fetcher};
use crate::lock::{Lock, Pin};
use crate::mirror::Mirrors;

/// All packages of a lock, in its order.
pub(super) fn layers(
    cache: &Path,
    suite: &str,
    lock: &Lock,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Layer>> {
    let is_unpacked = |pin: &&Pin| at(cache, pin, "json").exists();
    let missing: Vec<&Pin> = lock
        .pins
        .iter()
        .filter(|pin| !is_unpacked(pin) && !at(cache, pin, "deb").exists())
        .collect();
    if !missing.is_empty() {
        fetch(cache, suite, &missing, say)?;
    }
    lock.pins
        .iter()
        .map(|pin| {
            layer(cache, pin).with_context(|| format!("the package {} {}", pin.name, pin.version))
        })
        .collect()
}

fn at(cache: &Path, pin: &Pin, extension: &str) -> PathBuf {
    cache.join(format!("{}.{extension}", pin.sha256))
}

fn layer(cache: &Path, pin: &Pin) -> Result<Layer> {
    let (list, contents) = (at(cache, pin, "json"), at(cache, pin, "contents"));
    let entries: Vec<Entry> = if let Ok(bytes) = std::fs::read(&list) {
        serde_json::from_slice(&bytes).context("reading the cache")?
    } else {
        let deb = at(cache, pin, "deb");
        let entries = write_whole(&contents, |out| Ok(package::unpack(&deb, out)?))?;
        // The list comes last, so that contents are whole where there is one.
        let text = serde_json::to_vec(&entries)?;
        write_whole(&list, |out| Ok(out.write_all(&text)?))?;
        std::fs::remove_file(&deb)?;
        entries
    };
    Ok(Layer { package: pin.name.clone(), entries, contents: contents.into() })
}

/// Fetches packages and keeps those that match the lock.
fn fetch(cache: &Path, suite: &str, pins: &[&Pin], say: &mut dyn FnMut(&str)) -> Result<()> {
    let fetcher = Fetcher::find()?;
    let mirrors = Mirrors::find(suite)?;
    let bytes: u64 = pins.iter().map(|pin| pin.bytes).sum();
    say(&format!("fetching {} packages, {} MB", pins.len(), bytes / 1_000_000));
    let mut wanted = Vec::new();
    for pin in pins {
        let address = format!("{}/{}", mirrors.address(pin.archive, suite)?, pin.path);
        wanted.push(Download { address, to: at(cache, pin, "part"), bytes_max: pin.bytes });
    }
    // Missing files are found below; the program's message then tells why.
    keep(cache, pins, fetcher.fetch_all(&wanted).err())
}

/// Keeps files that match the lock; `reason` is the message of a failed program.
fn keep(cache: &Path, pins: &[&Pin], recorded: Option<String>) -> Result<()> {
    let mut gone = Vec::new();
    for pin in pins {
        let part = at(cache, pin, "part");
        let (sha256, bytes) = match Sha256::of_file(&part) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                gone.push(format!("{} {}", pin.name, pin.version));
                continue;
            }
            Err(error) => return Err(error).with_context(|| part.display().to_string()),
        };
        if sha256 == pin.sha256 {
            std::fs::rename(part, at(cache, pin, "deb"))?;
            continue;
        }
        std::fs::remove_file(part)?;
        if recorded.is_some() && bytes < pin.bytes {
            let (name, version) = (&pin.name, &pin.version);
            gone.push(format!("{name} {version} ({bytes} of {} bytes came)", pin.bytes));
            continue;
        }
        bail!(
            "{} {} has {bytes} bytes with the digest {sha256}; the lock says {} bytes with {}",
            pin.name,
            pin.version,
            pin.bytes,
            pin.sha256
        );
    }
    if gone.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the mirror did not provide {}: {}\nIf it no longer has them (archives drop old versions), \
         pin what it has now: run `rootfs lock`",
        gone.join(", "),
        recorded.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Archive;

    fn pin(name: &str, content: &[u8]) -> Pin {
        Pin {
            name: name.into(),
            version: "1".into(),
            archive: Archive::Main,
            bytes: content.len() as u64,
            sha256: Sha256::of(content),
            path: format!("pool/{name}.deb"),
        }
    }

    #[test]
    fn truncated_packages_are_dropped_and_others_are_kept() {
        let cache = tempfile::tempdir().expect("a directory");
        let pins = [pin("whole", b"whole"), pin("cut", b"cut short"), pin("none", b"none")];
        let [whole, cut, _] = &pins;
        std::fs::write(at(cache.path(), whole, "part"), "whole").expect("a file");
        std::fs::write(at(cache.path(), cut, "part"), "cut").expect("a file");
        let pins: Vec<&Pin> = pins.iter().collect();
        let error = keep(cache.path(), &pins, Some("(18) the end came early".into()));
        let error = error.expect_err("two did not come").to_string();
        assert!(
            error.contains("cut 1 (3 of 9 bytes came), none 1: (18) the end came early"),
            "{error}"
        );
        assert!(at(cache.path(), whole, "deb").exists());
        assert!(!at(cache.path(), cut, "part").exists());
    }

    #[test]
    fn other_bytes_than_the_lock_says_are_never_kept() {
        for (came, digest) in [("other", Some("no matter")), ("oth", None), ("longer", Some("x"))] {
            let cache = tempfile::tempdir().expect("a directory");
            let pin = pin("other", b"right");
            std::fs::write(at(cache.path(), &pin, "part"), came).expect("a file");
            let error = keep(cache.path(), &[&pin], digest.map(str::to_owned));
            let error = error.expect_err("other bytes").to_string();
            assert!(error.contains("with the digest"), "{error}");
            let left = std::fs::read_dir(cache.path()).expect("ours").count();
            assert_eq!(left, 0, "nothing stays of it");
        }
    }
}
