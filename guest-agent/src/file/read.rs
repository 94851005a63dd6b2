//! A file on its way out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use protocol::message::Reply;
use protocol::requests::ReadFile;
use protocol::{Fault, FaultCode};

use super::limits::PIECE_BYTES;
use super::refusal::{refused_io, unfit};
use super::work::{Next, Producer, send};
use super::{info, path};
use crate::flow::Outlet;
use crate::task::blocking;

/// Answers when the file is open; its bytes then flow into `outlet`, whose first offset is that of
/// the request. A file that shrinks meanwhile ends early.
pub async fn read_file(ask: ReadFile, outlet: Outlet) -> Result<Reply, Fault> {
    let (reader, reply) = blocking(move || Reader::open(ask)).await?;
    send(Box::new(reader), outlet);
    Ok(reply)
}

struct Reader {
    path: PathBuf,
    file: File,
    at: u64,
    end: u64,
}

impl Reader {
    fn open(ask: ReadFile) -> Result<(Self, Reply), Fault> {
        let path = path::absolute(ask.path)?;
        if i64::try_from(ask.offset).is_err() {
            let why = format!("cannot be read from byte {} on: no file is so long", ask.offset);
            return Err(unfit(FaultCode::Invalid, path.as_path(), &why));
        }
        let (file, status) = info::open_regular(&path)?;
        let size = status.st_size.max(0) as u64;
        // Files whose content the kernel makes up when they are read occupy no blocks, and the
        // sizes that they claim mean nothing.
        let is_stored = status.st_blocks > 0;
        let bound = ask.length.map_or(u64::MAX, |length| ask.offset.saturating_add(length));
        let end = if is_stored { bound.min(size.max(ask.offset)) } else { bound };
        let name = path::name(&path).to_vec();
        let reply = Reply::Reading {
            bytes: is_stored.then(|| end - ask.offset),
            info: info::describe(&file, b"".as_slice(), name, &status),
        };
        Ok((Self { path, file, at: ask.offset, end }, reply))
    }
}

impl Producer for Reader {
    fn produce(&mut self, piece: &mut Vec<u8>) -> Result<Next, Fault> {
        let wanted = (self.end - self.at).min(PIECE_BYTES as u64) as usize;
        piece.resize(wanted, 0);
        let mut filled = 0;
        while filled < wanted {
            match self.file.read_at(&mut piece[filled..], self.at) {
                Ok(0) => {
                    self.end = self.at;
                    break;
                }
                Ok(count) => {
                    filled += count;
                    self.at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refused_io("read", self.path.as_path(), &error)),
            }
        }
        piece.truncate(filled);
        Ok(if self.at < self.end { Next::Piece } else { Next::End })
    }
}
