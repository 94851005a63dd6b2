//! A tree on its way in: a tar archive, unpacked while it arrives.
//!
//! Nothing is ever written outside the requested directory. A path in the archive is first checked
//! by itself (`safe_relative`), then resolved by the kernel beneath that directory and through no
//! symlink at all, whether the archive contained the symlink or it existed before. A file is always
//! a new one: an existing file with its name is unlinked first, so that no content is written
//! through a hard link into a file elsewhere.
//!
//! What was unpacked before a fault stays, except an incomplete file.

mod deferred;
mod place;
mod refused;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use archive::{Decoder, Entry, Event, Kind, TarError, safe_relative};
use nix::sys::stat::{SFlag, fstat};
use protocol::message::Reply;
use protocol::requests::TarPut;
use protocol::{Fault, FaultCode};

use self::deferred::Deferred;
use self::place::Place;
use super::attributes::Attributes;
use super::directory::make_all;
use super::layer::{Xattrs, clear, set_xattrs};
use super::refusal::{refused, refused_io, unfit};
use super::sparse::{finish_sparse, write_sparse};
use super::work::{Consumer, receive};
use super::{info, path};
use crate::flow::Inlet;
use crate::task::blocking;

/// Answers when all of the archive is in its place.
pub async fn tar_put(ask: TarPut, inlet: Inlet) -> Result<Reply, Fault> {
    let unpacker = blocking(move || Unpacker::open(ask)).await?;
    receive(Box::new(unpacker), &inlet).await
}

/// Answers when the layer of another sandbox is in its place here.
pub async fn layer_put(inlet: Inlet) -> Result<Reply, Fault> {
    let unpacker = blocking(Unpacker::of_layer).await?;
    receive(Box::new(unpacker), &inlet).await
}

struct Unpacker {
    root: OwnedFd,
    /// Whether entries get the owners that the archive names.
    owners: bool,
    decoder: Decoder,
    /// The file whose content is arriving.
    open: Option<OpenFile>,
    deferred: Deferred,
    /// Whether it is the writable layer of another sandbox.
    is_layer: bool,
    /// Bytes of content and entries that are in their places.
    bytes: u64,
    entries: u64,
}

struct OpenFile {
    file: File,
    place: Place,
    entry: Entry,
    xattrs: Xattrs,
}

impl Unpacker {
    fn open(ask: TarPut) -> Result<Self, Fault> {
        let path = path::absolute(ask.path)?;
        let root = if ask.parents { make_all(&path)? } else { info::open_directory(&path)? };
        Ok(Self {
            root,
            owners: ask.owners,
            decoder: Decoder::new(),
            open: None,
            deferred: Deferred::default(),
            is_layer: false,
            bytes: 0,
            entries: 0,
        })
    }

    /// Repeats another sandbox's layer over the root.
    fn of_layer() -> Result<Self, Fault> {
        Ok(Self {
            root: info::open_directory(Path::new("/"))?,
            owners: true,
            decoder: Decoder::with_xattrs(),
            open: None,
            deferred: Deferred::default(),
            is_layer: true,
            bytes: 0,
            entries: 0,
        })
    }

    fn on_entry(&mut self, entry: Entry) -> Result<(), Fault> {
        let components = safe_relative(&entry.path).map_err(|error| self.unsafe_path(&error))?;
        let xattrs = self.decoder.take_xattrs();
        if self.is_layer && entry.kind == (Kind::CharDevice { major: 0, minor: 0 }) {
            return clear(&self.root, &components.join(&b'/'));
        }
        let Some(place) = Place::of(&self.root, &components)? else {
            // The target directory itself is not changed.
            if entry.kind == Kind::Directory {
                return Ok(());
            }
            let why = "names the directory itself, but is none";
            return Err(unfit(FaultCode::Invalid, entry.path.as_slice(), why));
        };
        let attributes = self.attributes(&entry);
        if self.is_layer && place.has_other(entry.kind == Kind::Directory) {
            clear(&self.root, place.path())?;
        }
        match &entry.kind {
            Kind::Directory => {
                place.make_directory(entry.mode)?;
                place.set_xattrs(xattrs)?;
                self.deferred.add(&self.root, place.path(), &entry, attributes)?;
            }
            Kind::File { .. } => {
                let file = place.make_file()?;
                self.open = Some(OpenFile { file, place, entry, xattrs });
            }
            Kind::Symlink { target } => {
                place.make_symlink(target)?;
                place.set_attributes(attributes, &entry)?;
            }
            Kind::HardLink { target } => {
                let target = safe_relative(target).map_err(|error| self.unsafe_path(&error))?;
                place.make_hard_link(&self.root, &target)?;
            }
            Kind::Fifo => {
                place.make_special(SFlag::S_IFIFO, entry.mode, (0, 0))?;
                place.set_attributes(attributes, &entry)?;
            }
            Kind::CharDevice { major, minor } => {
                place.make_special(SFlag::S_IFCHR, entry.mode, (*major, *minor))?;
                place.set_attributes(attributes, &entry)?;
            }
            Kind::BlockDevice { major, minor } => {
                place.make_special(SFlag::S_IFBLK, entry.mode, (*major, *minor))?;
                place.set_attributes(attributes, &entry)?;
            }
        }
        Ok(())
    }

    fn on_content(&mut self, content: &[u8]) -> Result<(), Fault> {
        let Some(open) = &mut self.open else { return Ok(()) };
        write_sparse(&mut open.file, content)
            .map_err(|error| refused_io("unpack", open.entry.path.as_slice(), &error))?;
        self.bytes += content.len() as u64;
        Ok(())
    }

    fn on_end_of_entry(&mut self) -> Result<(), Fault> {
        if let Some(mut open) = self.open.take() {
            let attributes = self.attributes(&open.entry);
            let xattrs = std::mem::take(&mut open.xattrs);
            let complete = finish_sparse(&open.file)
                .and_then(|()| fstat(&open.file))
                .and_then(|status| attributes.apply(&open.file, &status))
                // After the owner, whose change takes some away.
                .and_then(|()| set_xattrs(open.file.as_fd(), xattrs))
                .and_then(|()| place::set_time(&open.file, &open.entry));
            if let Err(errno) = complete {
                let fault = refused("unpack", open.entry.path.as_slice(), errno);
                self.open = Some(open);
                return Err(fault);
            }
        }
        self.entries += 1;
        Ok(())
    }

    /// The attributes of an entry. A file that does not get its owner gets no set-id bits either:
    /// they would lend the agent's rights instead of the owner's.
    fn attributes(&self, entry: &Entry) -> Attributes {
        const SET_ID: u32 = 0o6000;
        if self.owners {
            let (uid, gid) = (Some(entry.uid), Some(entry.gid));
            return Attributes { permissions: Some(entry.mode), uid, gid };
        }
        let dropped = if entry.kind == Kind::Directory { 0 } else { SET_ID };
        Attributes { permissions: Some(entry.mode & !dropped), ..Attributes::default() }
    }

    fn malformed(&self, error: &TarError) -> Fault {
        let message = format!("cannot read the archive after {} entries: {error}", self.entries);
        Fault::new(FaultCode::Invalid, message)
    }

    fn unsafe_path(&self, error: &TarError) -> Fault {
        let code = match error {
            TarError::AbsolutePath { .. } | TarError::ParentComponent { .. } => FaultCode::Denied,
            _ => FaultCode::Invalid,
        };
        Fault::new(code, format!("refused after {} entries: {error}", self.entries))
    }
}

impl Consumer for Unpacker {
    fn consume(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        loop {
            match self.decoder.next_event(&mut bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(Event::Entry(entry))) => self.on_entry(entry)?,
                Ok(Some(Event::Content(content))) => self.on_content(content)?,
                Ok(Some(Event::EndOfEntry)) => self.on_end_of_entry()?,
                Ok(Some(Event::EndOfArchive)) => {}
                Err(error) => return Err(self.malformed(&error)),
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, Fault> {
        self.decoder.finish().map_err(|error| self.malformed(&error))?;
        self.deferred.settle_all(&self.root)?;
        Ok(Reply::Written { bytes: self.bytes, entries: self.entries })
    }
}

impl Drop for Unpacker {
    /// After a fault: finished directories get their attributes, as far as possible, and an
    /// incomplete file is removed.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.place.remove_file().ok();
        }
        self.deferred.settle_all(&self.root).ok();
    }
}
