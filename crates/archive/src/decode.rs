//! The push parser: bytes in any pieces become [`Event`]s.
//!
//! The receiver of a tree calls it; on the host the bytes come from a hostile guest. It holds at
//! most one header block, the body of one extended header and the extensions of one entry, whatever
//! the archive claims. Content is never copied, only passed on.

use super::header::{BLOCK_BYTES, Block, Header};
use super::path::{check_name, without_final_slashes};
use super::pax::{Attributes, Overrides};
use super::xattr::Xattrs;
use super::{DEVICE_NUMBER_MAX, Entry, FILE_BYTES_MAX, Kind, MODE_MASK, PAX_BYTES_MAX, TarError};
use crate::PATH_BYTES_MAX;

/// The body of a GNU long name: a path, a directory's slash, and the NUL that GNU counts.
const LONG_NAME_BYTES_MAX: usize = PATH_BYTES_MAX + 2;

const _: () = assert!(LONG_NAME_BYTES_MAX <= PAX_BYTES_MAX, "one bound for every body");

/// An event of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A new entry, its path and targets unjudged: see [`super::safe_relative`].
    Entry(Entry),
    /// The next bytes of the file whose entry came last; a part of the input, never empty.
    Content(&'a [u8]),
    /// The entry and all its content have arrived. Sent for every entry of any kind.
    EndOfEntry,
    /// The archive is complete; whatever follows is ignored.
    EndOfArchive,
}

/// Reads one archive.
#[derive(Default)]
pub struct Decoder {
    state: State,
    /// Bytes read since the start, for errors.
    offset: u64,
    block: BlockBuffer,
    /// The body of the extended header being read.
    body: Vec<u8>,
    /// The values of global headers, which apply until the end.
    global: Attributes,
    /// The extensions of the next entry, once there was one.
    overrides: Option<Overrides>,
    /// The extended attributes of the entry that came last, where they are wanted.
    xattrs: Xattrs,
    /// Why reading has ended for good: after a bad byte nothing that follows can be trusted.
    failure: Option<TarError>,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// The block being collected is a header.
    #[default]
    Header,
    /// It is the second of the two zero blocks, or else an error.
    SecondZero,
    /// In the body of an extended header.
    Extension { extension: Extension, bytes_left: u64, padding: u64 },
    /// In the content of an entry.
    Content { bytes_left: u64, padding: u64 },
    /// Between a content or body and the next block.
    Padding { bytes_left: u64 },
    /// After the second zero block.
    End,
}

#[derive(Clone, Copy)]
enum Extension {
    /// `x`, and Solaris's `X`: records for the next entry.
    Pax,
    /// `g`: records for all entries from here on.
    PaxGlobal,
    /// `L`: the next entry's path.
    LongPath,
    /// `K`: the next entry's link target.
    LongLink,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that also returns the extended attributes of entries.
    pub fn with_xattrs() -> Self {
        Self { xattrs: Xattrs::wanted(), ..Self::default() }
    }

    /// Names and values of the extended attributes of the entry that came last, once.
    pub fn take_xattrs(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.xattrs.take()
    }

    /// The next event in `input`, which is advanced past what was read. `None` means that all of it
    /// was read and more is needed; until then call again, as an event may need no further byte.
    ///
    /// After an error every call gives the same error.
    pub fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, TarError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let result = self.step(input);
        self.failure = result.as_ref().err().cloned();
        result
    }

    /// Whether the input was one complete archive; call it after all input.
    pub fn finish(&self) -> Result<(), TarError> {
        match (&self.failure, self.state) {
            (Some(failure), _) => Err(failure.clone()),
            (None, State::End) => Ok(()),
            (None, _) => Err(TarError::Truncated { offset: self.offset }),
        }
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, TarError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(block) = self.collect_block(input) else { return Ok(None) };
                    if let Some(entry) = self.on_header(&block)? {
                        return Ok(Some(Event::Entry(entry)));
                    }
                }
                State::SecondZero => {
                    let Some(block) = self.collect_block(input) else { return Ok(None) };
                    if !is_zero(&block) {
                        return Err(TarError::LoneZeroBlock { offset: self.block_offset() });
                    }
                    self.state = State::End;
                    return Ok(Some(Event::EndOfArchive));
                }
                State::Extension { extension, bytes_left: 0, padding } => {
                    self.on_extension(extension)?;
                    self.state = State::Padding { bytes_left: padding };
                }
                // The end of an entry needs no byte after the content, not even the padding, so
                // that a caller gets it as soon as possible.
                State::Content { bytes_left: 0, padding } => {
                    self.state = State::Padding { bytes_left: padding };
                    return Ok(Some(Event::EndOfEntry));
                }
                State::Padding { bytes_left: 0 } => self.state = State::Header,
                _ if input.is_empty() => return Ok(None),
                State::Extension { extension, bytes_left, padding } => {
                    let piece = self.take(input, bytes_left);
                    self.body.extend_from_slice(piece);
                    let bytes_left = bytes_left - piece.len() as u64;
                    self.state = State::Extension { extension, bytes_left, padding };
                }
                State::Content { bytes_left, padding } => {
                    let piece = self.take(input, bytes_left);
                    let bytes_left = bytes_left - piece.len() as u64;
                    self.state = State::Content { bytes_left, padding };
                    return Ok(Some(Event::Content(piece)));
                }
                State::Padding { bytes_left } => {
                    let skipped = self.take(input, bytes_left).len() as u64;
                    self.state = State::Padding { bytes_left: bytes_left - skipped };
                }
                State::End => {
                    self.take(input, u64::MAX);
                }
            }
        }
    }

    /// Acts on a block where a header is due. Gives the entry if it was the header of one.
    fn on_header(&mut self, block: &Block) -> Result<Option<Entry>, TarError> {
        if is_zero(block) {
            if self.overrides.is_some() {
                return Err(TarError::OrphanedExtension { offset: self.block_offset() });
            }
            self.state = State::SecondZero;
            return Ok(None);
        }
        let header = Header::parse(block, self.block_offset())?;
        let extension = match header.type_flag() {
            b'x' | b'X' => Extension::Pax,
            b'g' => Extension::PaxGlobal,
            b'L' => Extension::LongPath,
            b'K' => Extension::LongLink,
            _ => {
                let overrides = self.overrides.take();
                let mut overrides =
                    overrides.unwrap_or_else(|| Overrides::new(self.global, self.xattrs.of_next()));
                self.xattrs = std::mem::take(&mut overrides.xattrs);
                let entry = read_entry(header, overrides)?;
                let bytes_left = entry.kind.content_bytes();
                self.state = State::Content { bytes_left, padding: padding_bytes(bytes_left) };
                return Ok(Some(entry));
            }
        };
        let bytes_left = header.size()?;
        let limit = extension.body_bytes_max();
        if bytes_left > limit as u64 {
            return Err(TarError::TooLong { field: "extended header", bytes: bytes_left, limit });
        }
        self.body.clear();
        self.body.reserve_exact(bytes_left as usize);
        self.state = State::Extension { extension, bytes_left, padding: padding_bytes(bytes_left) };
        Ok(None)
    }

    /// Acts on the body of an extended header, which is complete.
    fn on_extension(&mut self, extension: Extension) -> Result<(), TarError> {
        let body = &self.body;
        if matches!(extension, Extension::PaxGlobal) {
            return self.global.read(body);
        }
        // The values of global headers are the defaults of the next entry.
        let next = self
            .overrides
            .get_or_insert_with(|| Overrides::new(self.global, self.xattrs.of_next()));
        match extension {
            Extension::Pax | Extension::PaxGlobal => next.read(body)?,
            Extension::LongPath => next.path = Some(until_nul(body)),
            Extension::LongLink => next.link = Some(until_nul(body)),
        }
        Ok(())
    }

    /// The position of the last block that was read.
    fn block_offset(&self) -> u64 {
        self.offset - BLOCK_BYTES as u64
    }

    /// The next block, once all of it has come.
    fn collect_block(&mut self, input: &mut &[u8]) -> Option<Block> {
        let piece = self.take(input, self.block.room() as u64);
        self.block.push(piece)
    }

    /// Moves `input` past its first bytes, at most `bytes_max` of them, and gives them.
    fn take<'a>(&mut self, input: &mut &'a [u8], bytes_max: u64) -> &'a [u8] {
        let length = usize::try_from(bytes_max).map_or(input.len(), |most| most.min(input.len()));
        let (taken, rest) = input.split_at(length);
        *input = rest;
        self.offset += length as u64;
        taken
    }

    /// What the decoder has allocated, for the test of its limits.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        let names = self.overrides.iter().flat_map(|overrides| [&overrides.path, &overrides.link]);
        self.body.capacity() + names.flatten().map(Vec::capacity).sum::<usize>()
    }
}

impl Extension {
    fn body_bytes_max(self) -> usize {
        match self {
            Self::Pax | Self::PaxGlobal => PAX_BYTES_MAX,
            Self::LongPath | Self::LongLink => LONG_NAME_BYTES_MAX,
        }
    }
}

/// A block of which a part has come.
struct BlockBuffer {
    bytes: Block,
    filled: usize,
}

impl Default for BlockBuffer {
    fn default() -> Self {
        Self { bytes: [0; BLOCK_BYTES], filled: 0 }
    }
}

impl BlockBuffer {
    fn room(&self) -> usize {
        BLOCK_BYTES - self.filled
    }

    /// Takes a piece that is no larger than the room, and gives the block if that completed it.
    fn push(&mut self, piece: &[u8]) -> Option<Block> {
        let end = self.filled + piece.len();
        self.bytes[self.filled..end].copy_from_slice(piece);
        self.filled = end % BLOCK_BYTES;
        (end == BLOCK_BYTES).then_some(self.bytes)
    }
}

/// An entry from its header and its extensions, which take precedence.
fn read_entry(header: Header<'_>, overrides: Overrides) -> Result<Entry, TarError> {
    let path = overrides.path.unwrap_or_else(|| header.path());
    let trimmed = without_final_slashes(&path);
    check_name("path", trimmed)?;
    // Archives from before directories had a type mark them by the slash alone.
    let is_marked_directory = path.ends_with(b"/");

    let link = || {
        let link = overrides.link.unwrap_or_else(|| header.link());
        check_name("link target", &link).map(|()| link)
    };
    // Only files have content. Some writers put a size into the headers of other kinds, but none of
    // them appends content.
    let kind = match header.type_flag() {
        b'0' | 0 | b'7' if is_marked_directory => Kind::Directory,
        b'0' | 0 | b'7' => Kind::File { size: file_size(header, overrides.size)? },
        b'1' => Kind::HardLink { target: link()? },
        b'2' => Kind::Symlink { target: link()? },
        b'3' => {
            let (major, minor) = device(header)?;
            Kind::CharDevice { major, minor }
        }
        b'4' => {
            let (major, minor) = device(header)?;
            Kind::BlockDevice { major, minor }
        }
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        b'S' => return Err(TarError::Sparse),
        // POSIX reads it as a regular file, but for content of an unknown kind that would be a
        // guess.
        flag => return Err(TarError::UnknownType { flag }),
    };

    let Attributes { uid, gid, mtime } = overrides.attributes;
    let (mtime_s, mtime_ns) = mtime.map_or_else(|| header.mtime().map(|s| (s, 0)), Ok)?;
    Ok(Entry {
        kind,
        mode: header.mode()? & MODE_MASK,
        uid: uid.map_or_else(|| header.uid(), Ok)?,
        gid: gid.map_or_else(|| header.gid(), Ok)?,
        mtime_s,
        mtime_ns,
        path: trimmed.to_vec(),
    })
}

fn file_size(header: Header<'_>, override_size: Option<u64>) -> Result<u64, TarError> {
    let size = override_size.map_or_else(|| header.size(), Ok)?;
    if size > FILE_BYTES_MAX { Err(TarError::OutOfRange { field: "size" }) } else { Ok(size) }
}

fn device(header: Header<'_>) -> Result<(u32, u32), TarError> {
    let (major, minor) = (header.device_major()?, header.device_minor()?);
    if major > DEVICE_NUMBER_MAX || minor > DEVICE_NUMBER_MAX {
        return Err(TarError::OutOfRange { field: "device number" });
    }
    Ok((major, minor))
}

fn is_zero(block: &Block) -> bool {
    block.iter().all(|&byte| byte == 0)
}

/// The padding between `size` bytes and the next full block.
fn padding_bytes(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK_BYTES as u64
}

fn until_nul(body: &[u8]) -> Vec<u8> {
    body.split(|&byte| byte == 0).next().unwrap_or(body).to_vec()
}
