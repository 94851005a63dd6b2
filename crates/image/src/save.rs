//! Saves images from the store to an archive: an OCI layout, or the format that docker loads.
//!
//! Contents are written as they are stored, so that an image keeps its digest, and each is verified on the
//! way: a disk error truncates the archive. Docker's format has unpacked layers, which are compared with the
//! configuration. An archive contains nothing time-dependent, so the same images give the same bytes; only
//! documents and one buffer are in memory. The caller's writer decides where it goes, and may stop it.

mod form;

use std::io::{self, BufWriter, Read, Write};

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry, padding};

use super::blobs::BlobError;
use super::digest::{Digest, Digester};
use super::layer::Compressed;
use super::layer::limits::{BUFFER_BYTES, LAYER_BYTES_MAX, LAYER_OVERHEAD_BYTES_MAX};
use super::reference::Reference;
use super::store::limits::MANIFESTS_MAX;
use super::store::{Image, ImageError, Images, Lease};
use form::{Content, Member};
pub use form::{Format, UnknownFormat};

const MEMBER_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Why images were not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("{count} images are too many for one archive; the limit is {max}")]
    TooMany { count: usize, max: usize },
    #[error("content {digest} cannot be read: {source}")]
    Read { digest: Digest, source: io::Error },
    #[error("layer {digest} decompresses to more than {max} bytes")]
    TooLarge { digest: Digest, max: u64 },
    #[error("the archive cannot be written: {0}")]
    Write(#[source] io::Error),
    #[error("it was stopped")]
    Stopped,
}

/// An image and its name in an archive.
struct NamedImage {
    lease: Lease,
    names: Vec<Reference>,
}

/// Images to save. They stay in the store while this is held.
pub struct ImageExport {
    images: Images,
    members: Vec<Member>,
    _chosen: Vec<NamedImage>,
}

impl Images {
    /// Finds the requested images and what to write. An image that was requested by a name has that name in
    /// the archive; one requested by its digest has none.
    pub fn saving(&self, requested: &[String], format: Format) -> Result<ImageExport, SaveError> {
        // Nothing goes between being found and being held.
        let shared = self.share()?;
        let mut chosen: Vec<NamedImage> = Vec::new();
        for text in requested {
            let image = self.find(text)?;
            let name = self.own_name(text, &image)?;
            let known = chosen.iter().position(|one| one.lease.image.digest == image.digest);
            let at = known.unwrap_or(chosen.len());
            if known.is_none() {
                chosen.push(NamedImage { lease: self.lease(&image)?, names: Vec::new() });
            }
            let names = &mut chosen[at].names;
            names.extend(name.filter(|name| !names.contains(name)));
        }
        drop(shared);
        if chosen.len() > MANIFESTS_MAX {
            return Err(SaveError::TooMany { count: chosen.len(), max: MANIFESTS_MAX });
        }
        let members = form::members(self.blobs(), format, &chosen)?;
        Ok(ImageExport { images: self.clone(), members, _chosen: chosen })
    }

    /// The name by which an image was requested, if it was one.
    fn own_name(&self, text: &str, image: &Image) -> Result<Option<Reference>, ImageError> {
        let Ok(name) = text.parse::<Reference>() else { return Ok(None) };
        if self.find_name(&name)?.is_none_or(|found| found.digest != image.digest) {
            return Ok(None);
        }
        // If there is also a tag, the digest only says what was wanted.
        Ok(Some(Reference { digest: name.digest.filter(|_| name.tag.is_none()), ..name }))
    }
}

/// Receives how many more bytes were read; returns whether to continue.
type OnProgress<'a> = &'a mut dyn FnMut(u64) -> bool;

impl ImageExport {
    /// The number of bytes that will be read.
    pub fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.content.read_bytes()).sum()
    }

    /// Writes the archive. What was written before an error is no whole one. Blocks.
    pub fn write(&self, out: impl Write, went: OnProgress<'_>) -> Result<(), SaveError> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        for member in &self.members {
            self.member(&mut out, member, went)?;
        }
        out.write_all(END_OF_ARCHIVE).and_then(|()| out.flush()).map_err(SaveError::Write)
    }

    fn member(
        &self,
        out: &mut impl Write,
        Member { name, content }: &Member,
        went: OnProgress<'_>,
    ) -> Result<(), SaveError> {
        let size = match content {
            Content::Directory => return header(out, name, DIRECTORY_MODE, Kind::Directory),
            Content::Text(text) => {
                header(out, name, MEMBER_MODE, Kind::File { size: text.len() as u64 })?;
                out.write_all(text).map_err(SaveError::Write)?;
                text.len() as u64
            }
            Content::Kept { digest, size } => {
                header(out, name, MEMBER_MODE, Kind::File { size: *size })?;
                let blob = self.open(digest)?;
                let (found, bytes) = pass(digest, blob.take(*size), out, *size, went)?;
                if (found, bytes) != (*digest, *size) {
                    return Err(
                        ImageError::from(BlobError::Digest { wanted: *digest, found }).into()
                    );
                }
                *size
            }
            Content::Unpacked { digest, diff_id, .. } => {
                // An archive gives the size before the content, so the layer is unpacked twice.
                let max = LAYER_BYTES_MAX + LAYER_OVERHEAD_BYTES_MAX;
                let (_, size) = self.unpack(digest, &mut io::sink(), max, went)?;
                header(out, name, MEMBER_MODE, Kind::File { size })?;
                let (found, _) = self.unpack(digest, out, size, went)?;
                if found != *diff_id {
                    let (digest, diff_id) = (*digest, *diff_id);
                    return Err(ImageError::DiffId { digest, diff_id, found }.into());
                }
                size
            }
        };
        out.write_all(padding(size)).map_err(SaveError::Write)
    }

    fn open(&self, digest: &Digest) -> Result<impl Read + use<>, SaveError> {
        Ok(self.images.blobs().open_blob(digest).map_err(ImageError::from)?)
    }

    /// Copies the unpacked content of a layer.
    fn unpack(
        &self,
        digest: &Digest,
        out: &mut impl Write,
        max: u64,
        went: OnProgress<'_>,
    ) -> Result<(Digest, u64), SaveError> {
        let mut is_stopped = false;
        let inner = self.open(digest)?;
        let watched = ProgressReader { inner, is_stopped: &mut is_stopped, went };
        let passed = Compressed::open(watched)
            .map_err(|source| SaveError::Read { digest: *digest, source })
            .and_then(|inner| pass(digest, inner, out, max, &mut |_| true));
        if is_stopped { Err(SaveError::Stopped) } else { passed }
    }
}

/// Counts what is read through it, and ends when the callback says so.
struct ProgressReader<'a, R> {
    inner: R,
    is_stopped: &'a mut bool,
    went: OnProgress<'a>,
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if (self.went)(read as u64) {
            return Ok(read);
        }
        *self.is_stopped = true;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

/// Passes all of a content on, and gives the digest and the number of its bytes.
fn pass(
    digest: &Digest,
    mut from: impl Read,
    to: &mut impl Write,
    max: u64,
    went: OnProgress<'_>,
) -> Result<(Digest, u64), SaveError> {
    let mut digester = Digester::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|source| SaveError::Read { digest: *digest, source })?,
        };
        if count == 0 {
            let bytes = digester.bytes();
            return Ok((digester.finish(), bytes));
        }
        digester.update(&buffer[..count]);
        if digester.bytes() > max {
            return Err(SaveError::TooLarge { digest: *digest, max });
        }
        to.write_all(&buffer[..count]).map_err(SaveError::Write)?;
        if !went(count as u64) {
            return Err(SaveError::Stopped);
        }
    }
}

fn header(out: &mut impl Write, name: &str, mode: u32, kind: Kind) -> Result<(), SaveError> {
    let path = name.as_bytes().to_vec();
    let entry = Entry { path, kind, mode, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 };
    let mut header = Vec::new();
    let encoded = encode_entry(&entry, &mut header).map_err(io::Error::other);
    encoded.and_then(|()| out.write_all(&header)).map_err(SaveError::Write)
}
