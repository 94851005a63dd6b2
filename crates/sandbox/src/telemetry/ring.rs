//! A file of the newest records of one resolution. It grows until it has all its records, and then the oldest
//! is overwritten.
//!
//! A record's place follows from its sequence number. The newest record is still being added to, and is
//! written again each time, so that a killed bridge loses no more than what it had not written. Of a coarse file not
//! even that: it is written less often than the finest, and catches up with that when it is opened. A file
//! that is not ours is set aside, and a damaged record is skipped. A file of the first version, whose records are
//! shorter, is written again when it is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::bucket::{Bucket, FIRST_RECORD_BYTES, RECORD_BYTES};
use crate::limits::TELEMETRY_PENDING_MAX;
use host::paths::{PRIVATE_FILE, write_durably};

const HEAD_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"burrowm2";
const FIRST_MAGIC: [u8; 8] = *b"burrowm1";

/// How fine the records of a file are, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    pub file: &'static str,
    pub step_ms: u64,
    pub records: u32,
}

/// What is kept of a sandbox's samples: every second of an hour or more, ten seconds of a day, minutes of 30
/// days. A record has 216 bytes, so a sandbox that is busy for a month takes 12.0 MB, in its first hour 0.9 MB.
pub const RESOLUTIONS: [Resolution; 3] = [
    Resolution { file: "seconds", step_ms: 1_000, records: 3_600 },
    Resolution { file: "tens", step_ms: 10_000, records: 8_640 },
    Resolution { file: "minutes", step_ms: 60_000, records: 43_200 },
];

/// See the module's description.
#[derive(Debug)]
pub struct Ring {
    path: PathBuf,
    resolution: Resolution,
    /// The sequence number of the newest record.
    newest: u32,
    open: Option<Bucket>,
    /// Records that are full and not written yet.
    pending: Vec<(u32, Bucket)>,
}

impl Ring {
    /// Finds the end of what an earlier bridge has written; and says whether a file was set aside.
    pub fn open(directory: &Path, resolution: Resolution) -> io::Result<(Self, bool)> {
        let path = directory.join(resolution.file);
        let mut ring = Self { path, resolution, newest: 0, open: None, pending: Vec::new() };
        let is_ours = match File::open(&ring.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((ring, false)),
            Err(error) => return Err(error),
            Ok(file) if ring.is_first_version(&file) => {
                // Nothing is lost if it fails: the file is set aside.
                ring.upgrade().and_then(|file| ring.find_newest(&file)).unwrap_or(false)
            }
            Ok(file) => ring.find_newest(&file)?,
        };
        if !is_ours {
            fs::rename(&ring.path, ring.path.with_extension("damaged"))?;
        }
        Ok((ring, !is_ours))
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        self.head_of(MAGIC, RECORD_BYTES)
    }

    fn is_first_version(&self, file: &File) -> bool {
        let mut head = [0; HEAD_BYTES];
        let first = self.head_of(FIRST_MAGIC, FIRST_RECORD_BYTES);
        file.read_exact_at(&mut head, 0).is_ok() && head == first
    }

    /// Writes a file of the first version again, in the place of the old one.
    fn upgrade(&self) -> io::Result<File> {
        let old = fs::read(&self.path)?;
        let records = old[HEAD_BYTES.min(old.len())..].chunks_exact(FIRST_RECORD_BYTES);
        let mut bytes = self.head().to_vec();
        for record in records.take(self.resolution.records as usize) {
            // A damaged one stays damaged.
            let again = Bucket::parse(record).map(|(sequence, bucket)| bucket.encode(sequence));
            bytes.extend(again.unwrap_or([0; RECORD_BYTES]));
        }
        let directory = self.path.parent().expect("a file in a directory");
        write_durably(directory, self.resolution.file, &bytes)?;
        File::open(&self.path)
    }

    fn head_of(&self, magic: [u8; 8], record_bytes: usize) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&magic);
        head[8..12].copy_from_slice(&(record_bytes as u32).to_le_bytes());
        head[12..].copy_from_slice(&self.resolution.records.to_le_bytes());
        head
    }

    fn place(&self, sequence: u32) -> u64 {
        let slot = u64::from(sequence % self.resolution.records);
        HEAD_BYTES as u64 + slot * RECORD_BYTES as u64
    }

    /// Whether it is a file of ours. The numbers rise to the newest record and go on with the oldest, so few
    /// records are read, unless one of them is damaged.
    fn find_newest(&mut self, file: &File) -> io::Result<bool> {
        let mut head = [0; HEAD_BYTES];
        let bytes = file.metadata()?.len();
        if bytes < HEAD_BYTES as u64 {
            return Ok(bytes == 0);
        }
        file.read_exact_at(&mut head, 0)?;
        if head != self.head() {
            return Ok(false);
        }
        let records = u64::from(self.resolution.records);
        let count = ((bytes - HEAD_BYTES as u64) / RECORD_BYTES as u64).min(records) as u32;
        let read = |slot: u32| -> io::Result<Option<(u32, Bucket)>> {
            let mut record = [0; RECORD_BYTES];
            file.read_exact_at(&mut record, self.place(slot))?;
            let parsed = Bucket::parse(&record);
            Ok(parsed.filter(|(sequence, _)| sequence % self.resolution.records == slot))
        };
        let mut found = None;
        let mut is_whole = count > 0;
        if let Some(first) = (count > 0).then(|| read(0)).transpose()?.flatten() {
            let (mut low, mut high) = (0, count);
            found = Some(first);
            while is_whole && high - low > 1 {
                let middle = low.midpoint(high);
                match read(middle)? {
                    Some(record) if Some(record.0) == first.0.checked_add(middle) => {
                        (low, found) = (middle, Some(record));
                    }
                    Some(_) => high = middle,
                    None => is_whole = false,
                }
            }
        } else {
            is_whole = false;
        }
        if !is_whole {
            for slot in 0..count {
                let both = [found, read(slot)?].into_iter().flatten();
                found = both.max_by_key(|(sequence, _)| *sequence);
            }
        }
        (self.newest, self.open) = match found {
            Some((sequence, bucket)) => (sequence, Some(bucket)),
            None => (0, None),
        };
        Ok(count == 0 || self.open.is_some())
    }

    /// When the newest record ends.
    pub fn newest_ms(&self) -> Option<u64> {
        self.open.map(|open| open.to_ms)
    }

    pub fn add(&mut self, bucket: &Bucket) {
        let step_ms = self.resolution.step_ms;
        match &mut self.open {
            Some(open) if open.to_ms / step_ms == bucket.to_ms / step_ms => open.merge(bucket),
            Some(open) => {
                if self.pending.len() >= TELEMETRY_PENDING_MAX {
                    self.pending.remove(0);
                }
                self.pending.push((self.newest, *open));
                self.newest = self.newest.wrapping_add(1);
                *open = *bucket;
            }
            None => self.open = Some(*bucket),
        }
    }

    /// Adds what the records of a finer ring have behind the newest of its own.
    pub fn catch_up(&mut self, finer: &[Bucket]) {
        let known_ms = self.newest_ms().unwrap_or(0);
        finer.iter().filter(|bucket| bucket.to_ms > known_ms).for_each(|bucket| self.add(bucket));
    }

    /// Whether there are records that are full and not written yet.
    pub fn has_full_records(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes what is not written yet. After a failure it is tried again with the next batch.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(open) = self.open else { return Ok(()) };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let mut file = file.open(&self.path)?;
        if file.metadata()?.len() == 0 {
            file.write_all(&self.head())?;
        }
        let mut run: Vec<u8> = Vec::new();
        let mut begin = 0;
        for (sequence, bucket) in self.pending.iter().chain([&(self.newest, open)]) {
            let place = self.place(*sequence);
            if !run.is_empty() && begin + run.len() as u64 != place {
                file.write_all_at(&run, begin)?;
                run.clear();
            }
            if run.is_empty() {
                begin = place;
            }
            run.extend(bucket.encode(*sequence));
        }
        file.write_all_at(&run, begin)?;
        self.pending.clear();
        Ok(())
    }

    /// All records, oldest first, with those that are not written yet.
    pub fn read(&self) -> io::Result<Vec<Bucket>> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(file) => {
                let most = self.place(self.resolution.records - 1) + RECORD_BYTES as u64;
                file.take(most).read_to_end(&mut bytes)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let records = bytes.get(HEAD_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
        let first = self.pending.first().map_or(self.newest, |(sequence, _)| *sequence);
        let parsed = records.filter_map(Bucket::parse).filter(|(sequence, _)| *sequence < first);
        let mut all: Vec<(u32, Bucket)> = parsed.collect();
        all.sort_unstable_by_key(|(sequence, _)| *sequence);
        let unwritten = self.pending.iter().map(|(_, bucket)| *bucket);
        Ok(all.into_iter().map(|(_, bucket)| bucket).chain(unwritten).chain(self.open).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bucket::CpuParts;
    use super::*;

    const SMALL: Resolution = Resolution { file: "small", step_ms: 1000, records: 10 };

    fn place(name: &str) -> PathBuf {
        let id = std::process::id();
        let directory = std::env::temp_dir().join(format!("burrow-ring-{name}-{id}"));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn bucket(at_s: u64) -> Bucket {
        Bucket { from_ms: (at_s - 1) * 1000, to_ms: at_s * 1000, samples: 1, ..Bucket::default() }
    }

    fn seconds(ring: &Ring) -> Vec<u64> {
        ring.read().unwrap().iter().map(|bucket| bucket.to_ms / 1000).collect()
    }

    #[test]
    fn the_newest_records_are_kept_whenever_a_bridge_ends() {
        let directory = place("newest");
        for at_s in 1..=37 {
            // Each bridge adds one, and is killed after it has written.
            let (mut ring, is_damaged) = Ring::open(&directory, SMALL).unwrap();
            assert!(!is_damaged);
            ring.add(&bucket(at_s));
            ring.write().unwrap();
            ring.add(&bucket(at_s + 100));
            let (again, _) = Ring::open(&directory, SMALL).unwrap();
            let expected: Vec<u64> = (at_s.saturating_sub(9).max(1)..=at_s).collect();
            assert_eq!(seconds(&again), expected);
        }
        let length = fs::metadata(directory.join("small")).unwrap().len();
        assert_eq!(length, (HEAD_BYTES + 10 * RECORD_BYTES) as u64);
    }

    #[test]
    fn samples_of_one_step_are_one_record_also_over_bridges() {
        let directory = place("merged");
        let (mut ring, _) = Ring::open(&directory, SMALL).unwrap();
        ring.add(&Bucket { to_ms: 5100, ..bucket(5) });
        ring.write().unwrap();
        let (mut ring, _) = Ring::open(&directory, SMALL).unwrap();
        ring.add(&Bucket { to_ms: 5900, ..bucket(5) });
        ring.add(&bucket(6));
        let all = ring.read().unwrap();
        assert_eq!(all.iter().map(|bucket| bucket.samples).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_damaged_record_is_skipped_and_a_strange_file_set_aside() {
        let directory = place("damaged");
        let (mut ring, _) = Ring::open(&directory, SMALL).unwrap();
        (1..=14).for_each(|at_s| ring.add(&bucket(at_s)));
        ring.write().unwrap();
        let path = directory.join("small");
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEAD_BYTES + 5 * RECORD_BYTES + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (mut ring, is_damaged) = Ring::open(&directory, SMALL).unwrap();
        assert!(!is_damaged);
        assert_eq!(seconds(&ring), [5, 7, 8, 9, 10, 11, 12, 13, 14]);
        ring.add(&bucket(15));
        ring.write().unwrap();
        assert_eq!(seconds(&Ring::open(&directory, SMALL).unwrap().0).last(), Some(&15));
        fs::write(&path, "not one of ours, by any means").unwrap();
        let (mut ring, is_damaged) = Ring::open(&directory, SMALL).unwrap();
        assert!(is_damaged && directory.join("small.damaged").exists());
        ring.add(&bucket(16));
        ring.write().unwrap();
        assert_eq!(seconds(&ring), [16]);
    }

    /// A file as the first version has written it, that was written over from the beginning again.
    fn write_first_version(directory: &Path, newest: u32) {
        let ring = Ring::open(directory, SMALL).unwrap().0;
        let mut bytes = ring.head_of(FIRST_MAGIC, FIRST_RECORD_BYTES).to_vec();
        for slot in 0..10 {
            let sequence = newest - (newest - slot) % 10;
            let mut record = bucket(sequence.into()).encode(sequence);
            let sum = crate::log::checksum(&record[4..FIRST_RECORD_BYTES]);
            record[..4].copy_from_slice(&sum.to_le_bytes());
            bytes.extend(&record[..FIRST_RECORD_BYTES]);
        }
        fs::write(directory.join("small"), bytes).unwrap();
    }

    #[test]
    fn a_file_of_the_first_version_is_read_and_continued() {
        let directory = place("first");
        write_first_version(&directory, 37);
        let (mut ring, is_damaged) = Ring::open(&directory, SMALL).unwrap();
        assert!(!is_damaged && !directory.join("small.damaged").exists());
        assert_eq!(seconds(&ring), (28..=37).collect::<Vec<_>>());
        assert!(ring.read().unwrap().iter().all(|at| at.cpu_parts == CpuParts::default()));
        ring.add(&bucket(38));
        ring.write().unwrap();
        let again = Ring::open(&directory, SMALL).unwrap().0;
        assert_eq!(seconds(&again), (29..=38).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_of_the_first_version_that_cannot_be_written_again_is_set_aside() {
        let directory = place("unwritable");
        write_first_version(&directory, 37);
        // Something else is where the new file is written first.
        fs::create_dir(directory.join("small.new")).unwrap();
        let (ring, is_damaged) = Ring::open(&directory, SMALL).unwrap();
        assert!(is_damaged && directory.join("small.damaged").exists());
        assert!(seconds(&ring).is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_written_with_the_next_batch() {
        let directory = place("full");
        let (mut ring, _) = Ring::open(&directory, SMALL).unwrap();
        (1..=3).for_each(|at_s| ring.add(&bucket(at_s)));
        fs::remove_dir_all(&directory).unwrap();
        ring.write().unwrap_err();
        assert_eq!(seconds(&ring), [1, 2, 3], "it is shown meanwhile");
        fs::create_dir_all(&directory).unwrap();
        ring.add(&bucket(4));
        ring.write().unwrap();
        assert_eq!(seconds(&Ring::open(&directory, SMALL).unwrap().0), [1, 2, 3, 4]);
    }
}
