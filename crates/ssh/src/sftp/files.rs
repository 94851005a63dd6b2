//! Open files and directories, over the guest's own calls.
//!
//! The guest's calls are streams of a file from an offset on, and clients read and write one piece after the other:
//! a handle keeps its stream as long as the pieces follow each other, and opens another where they do not. What
//! was written is complete, and on disk, when the stream is finished: at `close`, at `fsync`, and before the handle
//! is asked for anything else.

use protocol::Text;
use protocol::message::{Entries, FileInfo, FileKind};
use protocol::requests::WriteMode;

use agent_client::guest::{FileTarget, Guest, Output, Piece, Upload};

use super::packet::{Attributes, OpenFlags, Status};
use super::refusal::refused;
use super::tools;
use crate::limits::{SFTP_NAMES_MAX, SFTP_READ_BYTES_MAX};

/// The permissions that new files do not get, as with most login shells.
pub const UMASK: u32 = 0o022;

/// An open file.
pub struct File {
    path: Text,
    flags: OpenFlags,
    reading: Option<Reading>,
    writing: Option<Writing>,
    /// Why something failed that was not asked for by the handle.
    failed: Option<Status>,
}

struct Reading {
    output: Output,
    /// What has come and was not asked for yet.
    rest: Vec<u8>,
    /// The offset of its first byte.
    at: u64,
}

struct Writing {
    upload: Upload,
    /// Where the next byte goes.
    at: u64,
}

impl File {
    pub async fn open(
        guest: &Guest,
        path: Text,
        flags: OpenFlags,
        attributes: Attributes,
    ) -> Result<Self, Status> {
        let found = match guest.stat(path.clone(), true).await {
            Ok(info) => Some(info),
            Err(error) => match refused(&error) {
                Status::NoSuchFile(_) if flags.writes() && flags.creates() => None,
                status => return Err(status),
            },
        };
        if found.as_ref().is_some_and(|info| info.kind != FileKind::File) {
            return Err(Status::Failure(format!("{path} is not a regular file")));
        }
        let mode = match &found {
            _ if !flags.writes() => None,
            Some(_) if flags.creates() && flags.excludes() => Some(WriteMode::Create {}),
            Some(info) if flags.truncates() && info.bytes > 0 => Some(WriteMode::Replace {}),
            Some(_) => None,
            None if flags.excludes() => Some(WriteMode::Create {}),
            None => Some(WriteMode::At { offset: 0 }),
        };
        let mut file = Self { path, flags, reading: None, writing: None, failed: None };
        if let Some(mode) = mode {
            // One that is there keeps its own.
            let permissions = attributes.permissions.filter(|_| found.is_none());
            let permissions = permissions.map(|permissions| permissions & !UMASK);
            let target = FileTarget { mode, permissions, ..FileTarget::replace(file.path.clone()) };
            let upload = guest.write_file(target).map_err(|error| refused(&error))?;
            file.writing = Some(Writing { upload, at: 0 });
            if !matches!(mode, WriteMode::At { .. }) || flags.appends() {
                file.settle().await?;
            }
        }
        Ok(file)
    }

    pub async fn read(&mut self, guest: &Guest, at: u64, bytes: u32) -> Result<Vec<u8>, Status> {
        if !self.flags.reads() {
            return Err(Status::Denied("the file is not open for reading".to_owned()));
        }
        self.settle_before().await?;
        let bytes = SFTP_READ_BYTES_MAX.min(bytes as usize);
        let mut reading = match self.reading.take() {
            Some(reading) if reading.at == at => reading,
            _ => {
                let opened = guest.read_file(self.path.clone(), at, None).await;
                let (output, ..) = opened.map_err(|error| refused(&error))?;
                Reading { output, rest: Vec::new(), at }
            }
        };
        let mut ended = false;
        while reading.rest.len() < bytes && !ended {
            match reading.output.next().await {
                Piece::Bytes { bytes, .. } => reading.rest.extend(bytes),
                Piece::End => ended = true,
                Piece::Gap { .. } => return Err(Status::Failure("bytes were lost".to_owned())),
                Piece::Failed(error) => return Err(refused(&error)),
            }
        }
        if reading.rest.is_empty() && bytes > 0 {
            return Err(Status::End);
        }
        let left = reading.rest.split_off(bytes.min(reading.rest.len()));
        let piece = std::mem::replace(&mut reading.rest, left);
        reading.at += piece.len() as u64;
        // At the end the next read looks again: the file may have grown.
        self.reading = (!ended || !reading.rest.is_empty()).then_some(reading);
        Ok(piece)
    }

    pub async fn write(&mut self, guest: &Guest, at: u64, bytes: &[u8]) -> Result<(), Status> {
        if !self.flags.writes() {
            return Err(Status::Denied("the file is not open for writing".to_owned()));
        }
        self.reading = None;
        let is_next = |writing: &Writing| self.flags.appends() || writing.at == at;
        if !self.writing.as_ref().is_some_and(is_next) {
            self.settle().await?;
            let mode = if self.flags.appends() {
                WriteMode::Append {}
            } else {
                WriteMode::At { offset: at }
            };
            let target = FileTarget { mode, ..FileTarget::replace(self.path.clone()) };
            let upload = guest.write_file(target).map_err(|error| refused(&error))?;
            self.writing = Some(Writing { upload, at });
        }
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.upload.write(bytes).await;
        writing.at += bytes.len() as u64;
        if let Err(error) = written {
            self.writing = None;
            return Err(refused(&error));
        }
        Ok(())
    }

    /// Waits until all that was written is in the file and on disk.
    pub async fn settle(&mut self) -> Result<(), Status> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        match self.writing.take() {
            Some(writing) => {
                writing.upload.finish().await.map(drop).map_err(|error| refused(&error))
            }
            None => Ok(()),
        }
    }

    /// The same, before the handle is asked for something else. Its answer has the error, and so has that of
    /// `close`: clients pass over an answer that only says that times and permissions were not set.
    async fn settle_before(&mut self) -> Result<(), Status> {
        let settled = self.settle().await;
        self.failed = settled.clone().err();
        settled
    }

    /// The same, before something else that may be about the file. The handle has the error later.
    pub async fn settle_aside(&mut self) {
        self.failed = self.settle().await.err();
    }

    pub async fn stat(&mut self, guest: &Guest) -> Result<FileInfo, Status> {
        self.settle_before().await?;
        guest.stat(self.path.clone(), true).await.map_err(|error| refused(&error))
    }

    pub async fn set(&mut self, guest: &Guest, attributes: Attributes) -> Result<(), Status> {
        self.settle_before().await?;
        tools::set_attributes(guest, &self.path, attributes).await
    }
}

/// An open directory.
pub struct Directory {
    path: Text,
    page: std::vec::IntoIter<FileInfo>,
    /// The last name of a page that others follow.
    after: Option<Text>,
}

impl Directory {
    pub async fn open(guest: &Guest, path: Text) -> Result<Self, Status> {
        let mut directory = Self { path, page: Vec::new().into_iter(), after: None };
        directory.turn(guest).await?;
        Ok(directory)
    }

    /// The next entries; none at the end.
    pub async fn next(&mut self, guest: &Guest) -> Result<Vec<FileInfo>, Status> {
        if self.page.len() == 0 && self.after.is_some() {
            self.turn(guest).await?;
        }
        Ok(self.page.by_ref().take(SFTP_NAMES_MAX).collect())
    }

    async fn turn(&mut self, guest: &Guest) -> Result<(), Status> {
        let page = guest.list_page(&self.path, self.after.as_ref()).await;
        let Entries { entries, more } = page.map_err(|error| refused(&error))?;
        self.after = entries.last().filter(|_| more).map(|info| info.name.clone());
        self.page = entries.into_iter();
        Ok(())
    }
}
