//! `rootfs lock`: makes locks from the indexes of a mirror, after checking these against the
//! archive's signature.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use super::{LOCKS, RECIPES, TIME_VARIABLE, time_s, write_whole};
use crate::debian::decompress;
use crate::debian::release::Release;
use crate::debian::resolve::Universe;
use crate::digest::Sha256;
use crate::fetch::{Download, Fetcher};
use crate::lock::{Archive, Lock, Pin};
use crate::mirror::Mirrors;
use crate::recipe::{Recipe, Recipes};
use crate::signature::signed_text;

/// The index for our machines' architecture, below a release.
const INDEX: &str = "main/binary-amd64/Packages.xz";

/// The keys that Debian's archives sign with, where the package of them has put them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The size limit of a release; Debian's largest has 200 KB.
const RELEASE_BYTES_MAX: u64 = 4 << 20;

/// The size limit of an unpacked index; Debian's has 50 MB.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// The suites that are searched: archive, suffix of their names, whether one may be missing.
const SUITES: [(Archive, &str, bool); 3] = [
    (Archive::Main, "", false),
    (Archive::Main, "-updates", true),
    (Archive::Security, "-security", false),
];

/// Writes the locks of the named recipes, or of all.
pub fn lock(source: &Path, names: &[String], say: &mut dyn FnMut(&str)) -> Result<()> {
    let book = Recipes::new(&source.join(RECIPES));
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
        let name = format!("{suite}{ending}");
        let signed = scratch.join(format!("InRelease{ending}"));
        let (from, bytes_max) = (format!("{address}/InRelease"), RELEASE_BYTES_MAX);
        match fetcher.fetch(Download { address: from, to: signed.clone(), bytes_max }) {
            Err(error) if may_be_missing => {
                say(&format!("continuing without {name}: {error}"));
                continue;
            }
            result => result?,
        }
        let release = release(&signed, &name, say).with_context(|| address.clone())?;
        let (bytes, sha256) = release.file(INDEX)?;
        let index = scratch.join(format!("Packages{ending}.xz"));
        let from = format!("{address}/{INDEX}");
        fetcher.fetch(Download { address: from, to: index.clone(), bytes_max: bytes })?;
        let (found, found_bytes) = Sha256::of_file(&index)?;
        if (found, found_bytes) != (sha256, bytes) {
            bail!(
                "the index of {name} has {found_bytes} bytes with the digest {found}; its release \
                 says {bytes} bytes with {sha256}. A mirror in the middle of an update does that: \
                 try again later"
            );
        }
        let reader = decompress::reader(INDEX, std::fs::File::open(&index)?)?;
        let text = decompress::read_whole(reader, INDEX_BYTES_MAX)
            .with_context(|| format!("the index of {name}"))?;
        let text = String::from_utf8(text)?;
        universe.add(archive.name(), &text)?;
        newest_s = newest_s.max(release.date_s);
    }
    Ok((universe, newest_s))
}

/// The release in a downloaded file, verified as far as possible here.
fn release(signed: &Path, name: &str, say: &mut dyn FnMut(&str)) -> Result<Release> {
    let vouched = signed_text(Path::new(KEYRING), signed, RELEASE_BYTES_MAX)?;
    let text = if let Some(text) = vouched {
        text
    } else {
        say(&format!("the signature of {name} is not checked: that needs gpgv and {KEYRING}"));
        std::fs::read_to_string(signed)?
    };
    let release = Release::parse(&text)?;
    // A mirror that keeps an old state on purpose is asked for that time.
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    release.check(name, time_s(now_s)?).with_context(|| {
        format!("a mirror that lags, or one of an old state: {TIME_VARIABLE} says its time")
    })?;
    Ok(release)
}
