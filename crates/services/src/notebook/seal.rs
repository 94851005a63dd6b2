//! Sealed files: data from guests is stored so that nobody without the bridge's key can read it or change it
//! unnoticed. Pure, except for the files themselves.
//!
//! ```text
//!  "BURROW\x01\n"  salt (32)  chunk* (256 KiB, the last one shorter, each with a tag of 16)
//! ```
//!
//! The key of a file is derived from the bridge's key and the salt. A chunk's nonce is its number and
//! whether it is the last, so that chunks cannot change places, and a file cannot end early. What a
//! file is, and whose, is sealed with it: one put in the place of another does not open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use super::limits::SEALED_CHUNK_BYTES;
use host::paths::PRIVATE_FILE;

const MAGIC: &[u8; 8] = b"BURROW\x01\n";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Separates these keys from others that may be derived from the same one.
const PURPOSE: &[u8] = b"burrow notebooks";

/// Why a sealed file is not read or written.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It was changed, or sealed with another key, or moved here from another place.
    #[error("it was changed after it was written, or it belongs to another notebook")]
    Broken,
    #[error("the key file {0:?} has {1} bytes instead of {KEY_BYTES}")]
    KeyLength(std::path::PathBuf, usize),
    #[error("the host has no random numbers")]
    Random,
}

/// The key of a bridge. Guests never see it.
#[derive(Clone)]
pub struct SealKey(hkdf::Prk);

impl SealKey {
    /// Reads the key, and makes one where there is none.
    pub fn open(path: &Path) -> Result<Self, SealError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
            Err(error) => return Err(error.into()),
        };
        if bytes.len() != KEY_BYTES {
            return Err(SealError::KeyLength(path.to_owned(), bytes.len()));
        }
        Ok(Self(hkdf::Salt::new(hkdf::HKDF_SHA256, PURPOSE).extract(&bytes)))
    }

    fn derive(&self, salt: &[u8; KEY_BYTES]) -> Result<LessSafeKey, SealError> {
        let info: [&[u8]; 1] = [salt];
        let derived = self.0.expand(&info, &CHACHA20_POLY1305).map_err(|_| SealError::Broken)?;
        Ok(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// A key that a crash leaves half-written would make all that is kept unreadable.
fn make(path: &Path) -> Result<Vec<u8>, SealError> {
    let mut bytes = vec![0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Random)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&name)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    // Another bridge of this directory may be at the same: the first one's key is both's.
    let placed = fs::hard_link(&name, path);
    fs::remove_file(&name)?;
    match placed {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(fs::read(path)?),
        placed => placed?,
    }
    Ok(bytes)
}

/// A file that is being sealed. It is for its owner alone.
pub struct Sealing {
    file: File,
    key: LessSafeKey,
    place: Vec<u8>,
    waiting: Vec<u8>,
    chunks: u64,
}

impl Sealing {
    /// `place` names the file and its owner.
    pub fn begin(key: &SealKey, path: &Path, place: &str) -> Result<Self, SealError> {
        let mut salt = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut salt).map_err(|_| SealError::Random)?;
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(path)?;
        file.write_all(MAGIC)?;
        file.write_all(&salt)?;
        let (key, place) = (key.derive(&salt)?, place.as_bytes().to_vec());
        Ok(Self { file, key, place, waiting: Vec::new(), chunks: 0 })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SealError> {
        self.waiting.extend_from_slice(bytes);
        // The last chunk is marked at the end, so one is always held back.
        while self.waiting.len() > SEALED_CHUNK_BYTES {
            let rest = self.waiting.split_off(SEALED_CHUNK_BYTES);
            self.seal(false)?;
            self.waiting = rest;
        }
        Ok(())
    }

    /// Everything is on disk when this returns.
    pub fn finish(&mut self) -> Result<(), SealError> {
        self.seal(true)?;
        self.file.sync_all()?;
        Ok(())
    }

    fn seal(&mut self, is_last: bool) -> Result<(), SealError> {
        let nonce = nonce(self.chunks, is_last);
        self.chunks += 1;
        let mut chunk = std::mem::take(&mut self.waiting);
        let sealed = self.key.seal_in_place_append_tag(nonce, Aad::from(&self.place), &mut chunk);
        sealed.map_err(|_| SealError::Broken)?;
        self.file.write_all(&chunk)?;
        Ok(())
    }
}

/// A sealed file that is being read.
pub struct Opening {
    file: File,
    key: LessSafeKey,
    place: Vec<u8>,
    chunks: u64,
    /// Bytes of the next chunk, read to know whether there is one.
    ahead: Vec<u8>,
    is_over: bool,
}

impl Opening {
    pub fn begin(key: &SealKey, path: &Path, place: &str) -> Result<Self, SealError> {
        let mut file = File::open(path)?;
        let mut head = [0; MAGIC.len() + KEY_BYTES];
        file.read_exact(&mut head).map_err(cut)?;
        let (magic, salt) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(SealError::Broken);
        }
        let salt = salt.try_into().map_err(|_| SealError::Broken)?;
        let (key, place) = (key.derive(&salt)?, place.as_bytes().to_vec());
        let mut opening = Self { file, key, place, chunks: 0, ahead: Vec::new(), is_over: false };
        opening.ahead = opening.read()?;
        Ok(opening)
    }

    /// The next chunk, after its verification; `None` after the last.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, SealError> {
        if self.is_over {
            return Ok(None);
        }
        let mut chunk = std::mem::take(&mut self.ahead);
        self.ahead = self.read()?;
        self.is_over = self.ahead.is_empty();
        let nonce = nonce(self.chunks, self.is_over);
        self.chunks += 1;
        let opened = self.key.open_in_place(nonce, Aad::from(&self.place), &mut chunk);
        let bytes = opened.map_err(|_| SealError::Broken)?.len();
        chunk.truncate(bytes);
        Ok(Some(chunk))
    }

    /// The whole file, if it has at most `bytes_max`.
    pub fn whole(mut self, bytes_max: u64) -> Result<Vec<u8>, SealError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.next()? {
            whole.extend_from_slice(&chunk);
            if whole.len() as u64 > bytes_max {
                return Err(SealError::Broken);
            }
        }
        Ok(whole)
    }

    fn read(&mut self) -> Result<Vec<u8>, SealError> {
        let most = SEALED_CHUNK_BYTES + TAG_BYTES;
        let mut chunk = Vec::with_capacity(most);
        (&mut self.file).take(most as u64).read_to_end(&mut chunk)?;
        Ok(chunk)
    }
}

/// A file that ends too early was changed; other errors are the disk's.
fn cut(error: io::Error) -> SealError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SealError::Broken,
        _ => error.into(),
    }
}

fn nonce(chunk: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&chunk.to_le_bytes());
    bytes[NONCE_LEN - 1] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct TestDirectory(PathBuf);

    impl TestDirectory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("burrow-seal-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn key(&self) -> SealKey {
            SealKey::open(&self.0.join("key")).unwrap()
        }

        fn seal(&self, name: &str, place: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            let mut sealing = Sealing::begin(&self.key(), &path, place).unwrap();
            for piece in content.chunks(100_000) {
                sealing.write(piece).unwrap();
            }
            sealing.finish().unwrap();
            path
        }

        fn open(&self, path: &Path, place: &str) -> Result<Vec<u8>, SealError> {
            Opening::begin(&self.key(), path, place)?.whole(u64::MAX)
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn sealed_files_open_at_every_length_around_a_chunk() {
        let place = TestDirectory::new("lengths");
        let chunk = SEALED_CHUNK_BYTES;
        for bytes in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 5] {
            let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let path = place.seal("blob", "a/b", &content);
            assert_eq!(place.open(&path, "a/b").unwrap(), content, "{bytes}");
            let sealed = fs::read(&path).unwrap();
            assert!(bytes < 9 || !sealed.windows(9).any(|window| window == &content[..9]));
        }
    }

    #[test]
    fn a_changed_file_does_not_open() {
        let place = TestDirectory::new("changed");
        let content = vec![7; 2 * SEALED_CHUNK_BYTES + 10];
        let path = place.seal("blob", "a/b", &content);
        let sealed = fs::read(&path).unwrap();
        let chunk = SEALED_CHUNK_BYTES + TAG_BYTES;
        let head = MAGIC.len() + KEY_BYTES;
        let mut ruins: Vec<(&str, Vec<u8>)> = Vec::new();
        for at in [0, 9, head, head + chunk, sealed.len() - 1] {
            let mut ruin = sealed.clone();
            ruin[at] ^= 1;
            ruins.push(("a bit", ruin));
        }
        for end in [0, 5, head, head + 3, head + chunk, head + 2 * chunk, sealed.len() - 1] {
            ruins.push(("its end", sealed[..end].to_vec()));
        }
        ruins.push(("more", [&sealed[..], &sealed[..1]].concat()));
        let (first, second) = (head..head + chunk, head + chunk..head + 2 * chunk);
        let swapped =
            [&sealed[..head], &sealed[second.clone()], &sealed[first], &sealed[second.end..]];
        ruins.push(("the order of chunks", swapped.concat()));
        for (what, ruin) in ruins {
            fs::write(&path, ruin).unwrap();
            assert!(matches!(place.open(&path, "a/b"), Err(SealError::Broken)), "{what}");
        }
    }

    #[test]
    fn a_file_opens_in_its_own_place_with_its_own_key_alone() {
        let (place, other) = (TestDirectory::new("place"), TestDirectory::new("other"));
        let path = place.seal("blob", "team/a/1", b"secret");
        assert!(matches!(place.open(&path, "team/b/1"), Err(SealError::Broken)));
        assert!(matches!(other.open(&path, "team/a/1"), Err(SealError::Broken)));
        assert_eq!(place.open(&path, "team/a/1").unwrap(), b"secret");
        fs::write(other.0.join("key"), "short").unwrap();
        let refused = SealKey::open(&other.0.join("key")).err().expect("a refusal");
        assert!(matches!(refused, SealError::KeyLength(_, 5)));
    }
}
