//! The receipts of one state directory, and the key that signs them.
//!
//! Lines of JSON that are only added to, each on the disk before it is handed out. A line that a crash has torn was
//! handed to nobody, and is cut off by the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustix::fs::{FlockOperation, flock};

use super::limits::{FILE_BYTES_MAX, FILES_MAX};
use super::statement::{Evidence, Ran};
use super::{Receipt, ReceiptError, Statement, Subject, issued_entry, public_key};
use crate::audit::Audit;
use host::instant;
use host::journal::{Segment, lines};
use host::paths::{PRIVATE_FILE, make_private_directory, write_durably};
use sandbox::Record;

const PREFIX: &str = "receipts-";
const KEY: &str = "key.pk8";
const LOCK: &str = "lock";

/// See the module's description. Several processes may use one.
pub struct Ledger {
    directory: PathBuf,
}

impl Ledger {
    /// The one in this directory, which is made when something is written.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The public key of this bridge. The first call makes the key.
    pub fn public_key(&self) -> Result<String, ReceiptError> {
        let _turn = self.take_turn().map_err(|source| self.failed(source))?;
        self.key().map(|key| public_key(&key))
    }

    /// The receipt of a session or a run that has ended, of the sandbox whose log is in this directory. It has the decisions
    /// of the audit log, which records a new one.
    pub fn issue(
        &self,
        record: &Record,
        log: &Path,
        ran: Ran<'_>,
        audit: &Audit,
    ) -> Result<Receipt, ReceiptError> {
        let evidence = Evidence::read(audit, log, &Subject::of(record), ran)?;
        let statement = Statement::of(record, ran, evidence).ok_or_else(|| match ran {
            Ran::Session(session) => {
                ReceiptError::NotEnded { session: session.session.to_string() }
            }
            Ran::Run(_) => unreachable!("a run is recorded at its end"),
        })?;
        let _turn = self.take_turn().map_err(|source| self.failed(source))?;
        let key = self.key()?;
        let added = self.add(statement, &key).map_err(|source| self.failed(source));
        let (receipt, is_new) = added?;
        if is_new {
            audit.record(issued_entry(&receipt));
        }
        Ok(receipt)
    }

    fn add(&self, mut statement: Statement, key: &Ed25519KeyPair) -> io::Result<(Receipt, bool)> {
        let mut segments = Segment::all(&self.directory, PREFIX)?;
        let mut last: Option<Receipt> = None;
        let mut bytes = 0;
        for segment in &segments {
            let content = segment.read()?;
            bytes = 0;
            for line in lines(&content) {
                bytes += line.len() as u64 + 1;
                let Ok(receipt) = serde_json::from_slice::<Receipt>(line) else { continue };
                if receipt.statement.is_about_the_same(&statement) {
                    return Ok((receipt, false));
                }
                last = Some(receipt);
            }
        }
        statement.seq = last.as_ref().map_or(1, |last| last.statement.seq + 1);
        statement.previous = last.as_ref().map(Receipt::digest);
        statement.issued_at = instant::format(instant::now_ms());
        let receipt = Receipt::sign(statement, key);
        let line = receipt.line() + "\n";
        if segments.is_empty() || bytes + line.len() as u64 > FILE_BYTES_MAX {
            let surplus = (segments.len() + 1).saturating_sub(FILES_MAX);
            for oldest in segments.drain(..surplus) {
                fs::remove_file(&oldest.path)?;
            }
            segments.push(Segment::new(&self.directory, PREFIX, receipt.statement.seq));
            bytes = 0;
        }
        if let Some(newest) = segments.last() {
            append(&newest.path, bytes, line.as_bytes())?;
        }
        File::open(&self.directory)?.sync_all()?;
        Ok((receipt, true))
    }

    fn key(&self) -> Result<Ed25519KeyPair, ReceiptError> {
        let path = self.directory.join(KEY);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_key(),
            read => read,
        };
        let bytes = bytes.map_err(|source| self.failed(source))?;
        Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| ReceiptError::Key { path })
    }

    fn make_key(&self) -> io::Result<Vec<u8>> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
        write_durably(&self.directory, KEY, made.as_ref())?;
        Ok(made.as_ref().to_vec())
    }

    /// Waits until nobody else writes. The kernel ends the turn of a process that dies.
    fn take_turn(&self) -> io::Result<File> {
        make_private_directory(&self.directory)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let file = options.open(self.directory.join(LOCK))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn failed(&self, source: io::Error) -> ReceiptError {
        ReceiptError::Files { directory: self.directory.clone(), source }
    }
}

/// Writes a line behind the whole ones, and waits for the disk.
fn append(path: &Path, whole_bytes: u64, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).mode(PRIVATE_FILE).open(path)?;
    file.set_len(whole_bytes)?;
    file.write_all(line)?;
    file.sync_all()
}
