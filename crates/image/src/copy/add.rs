//! `ADD` of an archive: it is unpacked instead of copied. An archive is recognised by its content, not by
//! its name. It is untrusted: its entries are added to the layer one by one, and are checked again when
//! the layer is unpacked.

use std::collections::BTreeSet;
use std::io::Read;

use archive::{Decoder, Entry, Event, Kind, safe_relative};

use super::{CopyError, Layer, ResolvedPath, Root, Task, WHITEOUT};
use crate::layer::limits::{
    BUFFER_BYTES, DEPTH_MAX, HEADER_BYTES, LAYER_BYTES_MAX, LAYER_OVERHEAD_BYTES_MAX, NOTE_BYTES,
    NOTED_BYTES_MAX,
};
use crate::layer::{Bounded, CAPABILITY, Compressed, LayerError, kept_xattrs};
use host::byte_path::{ends, join, split};
use host::excerpt::path_excerpt;

/// The first bytes of archives that other builders unpack and that are not supported here, so they can be
/// neither copied nor unpacked. For bzip2, a digit follows.
const XZ: &[u8] = b"\xfd7zXZ\0";
const BZIP2: [&[u8]; 2] = [b"BZh", b"1AY&SY"];

/// Whether a file is an archive: its first block, unpacked if need be, is the header of an entry.
pub(super) fn is_archive(root: &Root, found: &ResolvedPath) -> Result<bool, CopyError> {
    if !found.kind.is_some_and(rustix::fs::FileType::is_file) {
        return Ok(false);
    }
    let failed = |source| CopyError::Read { path: path_excerpt(&found.path), source };
    let file = root.file(&found.path).map_err(failed)?;
    let Ok(inner) = Compressed::open(file) else { return Ok(false) };
    let mut block = Vec::new();
    // A file that only looks compressed is an ordinary file.
    if inner.take(HEADER_BYTES).read_to_end(&mut block).is_err() {
        return Ok(false);
    }
    if let Some(with) = unknown(&block) {
        return Err(CopyError::Compression { path: path_excerpt(&found.path), with });
    }
    let is_whole = block.len() as u64 == HEADER_BYTES && block.iter().any(|byte| *byte != 0);
    Ok(is_whole && Decoder::new().next_event(&mut block.as_slice()).is_ok())
}

/// The compression of a file that cannot be read here.
fn unknown(block: &[u8]) -> Option<&'static str> {
    let [first, second] = BZIP2;
    let rest = block.strip_prefix(first).and_then(|rest| rest.get(1..));
    match rest {
        _ if block.starts_with(XZ) => Some("xz"),
        Some(rest) if rest.starts_with(second) => Some("bzip2"),
        _ => None,
    }
}

/// Where the entries of one archive directory go.
#[derive(Default)]
struct ParentDirectory {
    in_archive: Vec<u8>,
    place: Vec<u8>,
    /// The links that the archive has made, which are not followed.
    links: BTreeSet<Vec<u8>>,
    noted_bytes: usize,
}

impl ParentDirectory {
    /// Records a link, and refuses paths through it.
    fn note(&mut self, place: &[u8], kind: &Kind) -> Result<(), LayerError> {
        if ends(split(place).0).any(|end| self.links.contains(&place[..end])) {
            return Err(LayerError::ThroughSymlink { path: path_excerpt(place) });
        }
        if !matches!(kind, Kind::Symlink { .. }) {
            self.links.remove(place);
            return Ok(());
        }
        self.noted_bytes += place.len() + NOTE_BYTES;
        if self.noted_bytes > NOTED_BYTES_MAX {
            return Err(LayerError::TooMuchNoted { max: NOTED_BYTES_MAX });
        }
        self.links.insert(place.to_vec());
        Ok(())
    }
}

impl Layer<'_> {
    /// Puts the content of an archive into a directory.
    pub(super) fn unpack(
        &mut self,
        task: &Task<'_>,
        path: &[u8],
        to: &[u8],
    ) -> Result<(), CopyError> {
        let archive = |source| CopyError::Archive { path: path_excerpt(path), source };
        let file = task.from.file(path);
        let file = file.map_err(|source| CopyError::Read { path: path_excerpt(path), source })?;
        let max = LAYER_BYTES_MAX + LAYER_OVERHEAD_BYTES_MAX;
        let mut bytes =
            Bounded::open(file, max).map_err(|error| archive(LayerError::Read(error)))?;
        self.add_directories(to, task.owner())?;
        let mut above = ParentDirectory { place: to.to_vec(), ..ParentDirectory::default() };
        let mut decoder = Decoder::with_xattrs();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut size = 0;
        loop {
            let read = match bytes.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => {
                    let exceeded = bytes.exceeded();
                    return Err(archive(exceeded.unwrap_or(LayerError::Compression(error))));
                }
            };
            let mut piece = &buffer[..read];
            while let Some(event) =
                decoder.next_event(&mut piece).map_err(|error| archive(error.into()))?
            {
                match event {
                    Event::Entry(entry) => {
                        size = entry.kind.content_bytes();
                        let attributes = kept_xattrs(&entry.path, decoder.take_xattrs());
                        let mut attributes = attributes.map_err(archive)?;
                        if task.owner.is_some_and(|owner| owner != (entry.uid, entry.gid)) {
                            attributes.retain(|(name, _)| name != CAPABILITY);
                        }
                        let entry = self.judge(task, to, &mut above, entry);
                        let entry = entry.map_err(|error| match error {
                            AddFault::Entry(error) => archive(error),
                            AddFault::Place(error) => error,
                        })?;
                        self.begin(entry, &attributes)?;
                    }
                    Event::Content(bytes) => self.content(bytes)?,
                    Event::EndOfEntry => self.end(size)?,
                    Event::EndOfArchive => {}
                }
            }
        }
        decoder.finish().map_err(|error| archive(error.into()))
    }

    /// An archive's entry in the layer.
    fn judge(
        &mut self,
        task: &Task<'_>,
        to: &[u8],
        above: &mut ParentDirectory,
        entry: Entry,
    ) -> Result<Entry, AddFault> {
        let place = self.within(to, above, &entry.path)?;
        let kind = match entry.kind {
            Kind::CharDevice { .. } | Kind::BlockDevice { .. } => {
                return Err(LayerError::Device { path: path_excerpt(&entry.path) }.into());
            }
            Kind::HardLink { target } => {
                Kind::HardLink { target: self.within(to, above, &target)? }
            }
            kind => kind,
        };
        above.note(&place, &kind)?;
        if place.is_empty() && !matches!(kind, Kind::Directory) {
            return Err(LayerError::Collision { path: "/".to_owned() }.into());
        }
        if !matches!(kind, Kind::Directory) {
            self.refuse_directory(&place)?;
        }
        self.add_directories(split(&place).0, task.owner())?;
        let mode = match kind {
            Kind::Symlink { .. } => entry.mode,
            _ => task.mode.unwrap_or(entry.mode),
        };
        let (uid, gid) = task.owner.unwrap_or((entry.uid, entry.gid));
        let path = if place.is_empty() { b".".to_vec() } else { place };
        Ok(Entry { path, kind, mode, uid, gid, ..entry })
    }

    /// Where a path of an archive is in the image: the image's own links to directories are
    /// followed within it, but the archive's are not.
    fn within(
        &self,
        to: &[u8],
        above: &mut ParentDirectory,
        path: &[u8],
    ) -> Result<Vec<u8>, AddFault> {
        let names = safe_relative(path).map_err(LayerError::from)?;
        if names.len() > DEPTH_MAX {
            return Err(LayerError::TooDeep { path: path_excerpt(path), max: DEPTH_MAX }.into());
        }
        if names.iter().any(|name| name.starts_with(WHITEOUT)) {
            return Err(CopyError::Whiteout { path: path_excerpt(path) }.into());
        }
        let Some((name, parents)) = names.split_last() else { return Ok(to.to_vec()) };
        let directory = parents.join(&b'/');
        if above.in_archive != directory {
            let whole = super::components(&join(to, &directory));
            (above.place, above.in_archive) = (self.place(&whole)?, directory);
        }
        let place = join(&above.place, name);
        Ok(self.place(&super::components(&place))?)
    }
}

/// The error for an entry or its target.
enum AddFault {
    Entry(LayerError),
    Place(CopyError),
}

impl From<LayerError> for AddFault {
    fn from(error: LayerError) -> Self {
        Self::Entry(error)
    }
}

impl From<CopyError> for AddFault {
    fn from(error: CopyError) -> Self {
        Self::Place(error)
    }
}
