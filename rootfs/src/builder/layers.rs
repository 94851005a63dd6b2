//! Packages on their way from a mirror to layers: fetched as the lock says, unpacked once, kept.
//!
//! `CACHE/SHA256.deb` is a package as it came, `SHA256.contents` and `SHA256.json` what is in it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};

use super::write_whole;
use crate::compose::Layer;
use crate::debian::package::{self, Entry};
use crate::digest::Sha256;
use crate::fetch::Fetcher;
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

/// Fetches packages and keeps those that are what the lock says.
fn fetch(cache: &Path, suite: &str, pins: &[&Pin], say: &mut dyn FnMut(&str)) -> Result<()> {
    let fetcher = Fetcher::find()?;
    let mirrors = Mirrors::find(suite)?;
    let bytes: u64 = pins.iter().map(|pin| pin.bytes).sum();
    say(&format!("fetching {} packages, {} MB", pins.len(), bytes / 1_000_000));
    let mut wanted = Vec::new();
    for pin in pins {
        let address = format!("{}/{}", mirrors.address(pin.archive, suite)?, pin.path);
        wanted.push((address, at(cache, pin, "part")));
    }
    // What did not come shows below; what the program said then tells why.
    let said = fetcher.fetch_all(&wanted).err().unwrap_or_default();
    let mut gone = Vec::new();
    for (pin, (_, part)) in pins.iter().zip(&wanted) {
        if !part.exists() {
            gone.push(format!("{} {}", pin.name, pin.version));
            continue;
        }
        let (sha256, bytes) = Sha256::of_file(part)?;
        if sha256 != pin.sha256 {
            std::fs::remove_file(part)?;
            bail!(
                "{} {} has {bytes} bytes with the digest {sha256}; the lock says {} bytes with {}",
                pin.name,
                pin.version,
                pin.bytes,
                pin.sha256
            );
        }
        std::fs::rename(part, at(cache, pin, "deb"))?;
    }
    if gone.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the mirror did not give {}: {said}\nIf it has them no more (archives drop old versions), \
         pin what it has now: run `rootfs lock`",
        gone.join(", ")
    ))
}
