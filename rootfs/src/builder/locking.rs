//! `rootfs lock`: from the indexes of a mirror, held against what the archive signs, to locks.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};

use super::{LOCKS, RECIPES, write_whole};
use crate::debian::decompress;
use crate::debian::release::Release;
use crate::debian::resolve::Universe;
use crate::digest::Sha256;
use crate::fetch::{Fetcher, signature_is_good};
use crate::lock::{Archive, Lock, Pin};
use crate::mirror::Mirrors;
use crate::recipe::{Book, Recipe};

/// The index of what our machines run, below a release.
const INDEX: &str = "main/binary-amd64/Packages.xz";

/// The keys that Debian's archives sign with, where the package of them has put them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How much an index may unpack to; Debian's has 50 MB.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// The suites that are looked into: archive, what their names end with, whether one may be missing.
const SUITES: [(Archive, &str, bool); 3] = [
    (Archive::Main, "", false),
    (Archive::Main, "-updates", true),
    (Archive::Security, "-security", false),
];

/// Writes the locks of the named recipes, or of all.
pub fn lock(source: &Path, names: &[String], say: &mut dyn FnMut(&str)) -> Result<()> {
    let book = Book::new(&source.join(RECIPES));
    let names = if names.is_empty() { book.names()? } else { names.to_vec() };
    let mut indexes: Option<(String, Universe, u64)> = None;
    for name in names {
        let recipe = book.get(&name)?;
        if recipe.packages.is_empty() {
            continue;
        }
        if indexes.as_ref().is_none_or(|(suite, ..)| *suite != recipe.suite) {
            let (universe, date_s) = fetch_indexes(&recipe.suite, say)?;
            indexes = Some((recipe.suite.clone(), universe, date_s));
        }
        let (_, universe, date_s) = indexes.as_ref().expect("fetched above");
        let lock =
            resolve(&recipe, universe, *date_s).with_context(|| format!("locking {name}"))?;
        let directory = source.join(LOCKS);
        std::fs::create_dir_all(&directory)?;
        write_whole(&directory.join(format!("{name}.lock")), |out| {
            Ok(std::io::Write::write_all(out, lock.encode().as_bytes())?)
        })?;
        let bytes: u64 = lock.pins.iter().map(|pin| pin.bytes).sum();
        say(&format!("{name}: {} packages, {} MB", lock.pins.len(), bytes / 1_000_000));
    }
    Ok(())
}

fn resolve(recipe: &Recipe, universe: &Universe, date_s: u64) -> Result<Lock> {
    let mut lock = Lock { date_s, pins: Vec::new() };
    for chosen in universe.closure(&recipe.packages, &recipe.without)? {
        lock.pins.push(Pin {
            name: chosen.name.clone(),
            version: chosen.version.clone(),
            archive: Archive::from_name(&chosen.archive).expect("named when it was added"),
            bytes: chosen.bytes,
            sha256: chosen.sha256,
            path: chosen.path.clone(),
        });
    }
    Ok(lock)
}

/// All packages of a suite, and when the newest of its indexes was made.
fn fetch_indexes(suite: &str, say: &mut dyn FnMut(&str)) -> Result<(Universe, u64)> {
    let (fetcher, mirrors) = (Fetcher::find()?, Mirrors::find(suite)?);
    let scratch = std::env::temp_dir().join(format!("rootfs-lock-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let result = fetch_indexes_into(&scratch, fetcher, &mirrors, suite, say);
    std::fs::remove_dir_all(&scratch)?;
    result
}

fn fetch_indexes_into(
    scratch: &Path,
    fetcher: Fetcher,
    mirrors: &Mirrors,
    suite: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(Universe, u64)> {
    let mut universe = Universe::default();
    let mut newest_s = 0;
    for (archive, ending, may_be_missing) in SUITES {
        let address = format!("{}/dists/{suite}{ending}", mirrors.address(archive, suite)?);
        let signed = scratch.join(format!("InRelease{ending}"));
        match fetcher.fetch(&format!("{address}/InRelease"), &signed) {
            Err(error) if may_be_missing => {
                say(&format!("going on without {suite}{ending}: {error}"));
                continue;
            }
            result => result?,
        }
        match signature_is_good(Path::new(KEYRING), &signed) {
            Some(true) => {}
            Some(false) => bail!("no good signature of Debian's on {address}/InRelease"),
            None => say(&format!(
                "the signature of {suite}{ending} is not checked: that needs gpgv and {KEYRING}"
            )),
        }
        let release = Release::parse(&std::fs::read_to_string(&signed)?)?;
        let (bytes, sha256) = release.file(INDEX)?;
        let index = scratch.join(format!("Packages{ending}.xz"));
        fetcher.fetch(&format!("{address}/{INDEX}"), &index)?;
        let (found, found_bytes) = Sha256::of_file(&index)?;
        if found != sha256 {
            return Err(anyhow!(
                "the index of {suite}{ending} has {found_bytes} bytes with the digest {found}; its \
                 release says {bytes} bytes with {sha256}. A mirror in the middle of an update does \
                 that: try again later"
            ));
        }
        let mut text = String::new();
        decompress::reader(INDEX, std::fs::File::open(&index)?)?
            .take(INDEX_BYTES_MAX)
            .read_to_string(&mut text)?;
        universe.add(archive.name(), &text)?;
        newest_s = newest_s.max(release.date_s);
    }
    Ok((universe, newest_s))
}
