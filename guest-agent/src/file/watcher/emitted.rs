//! The records of one turn of a watch: each change is reported once, up to the number that a client
//! must accept.
//!
//! Pure. A new directory is listed after it is watched, so what appears in it around then may be
//! both listed and reported by an event; listed names are remembered until the queue has been read
//! to its end.

use std::collections::HashSet;

use protocol::message::{Change, WatchEvent};
use protocol::watch::encode_record;

use super::super::limits::WATCH_RECORDS_MAX;

/// See the module's description.
#[derive(Default)]
pub struct Emitted {
    records: Vec<u8>,
    count: usize,
    overflowed: bool,
    found: HashSet<Vec<u8>>,
}

impl Emitted {
    pub fn emit(&mut self, change: Change, path: Vec<u8>) {
        self.push(&WatchEvent { change, path: path.into(), from: None });
    }

    /// Something was there when its directory was looked into.
    pub fn found(&mut self, path: Vec<u8>) {
        self.emit(Change::Created, path.clone());
        if !self.overflowed {
            self.found.insert(path);
        }
    }

    /// An event reports a new name. False if it was listed before.
    pub fn event_created(&mut self, path: &[u8]) -> bool {
        let is_news = !self.found.remove(path);
        if is_news {
            self.emit(Change::Created, path.to_vec());
        }
        is_news
    }

    pub fn removed(&mut self, path: Vec<u8>) {
        self.found.remove(&path);
        self.emit(Change::Removed, path);
    }

    /// Something was renamed. If its new name was listed, that was reported.
    pub fn moved(&mut self, from: Vec<u8>, to: Vec<u8>) {
        self.found.remove(&from);
        if !self.found.remove(&to) {
            let (change, path) = (Change::Moved, to.into());
            self.push(&WatchEvent { change, path, from: Some(from.into()) });
        }
    }

    /// Events were lost.
    pub fn overflow(&mut self) {
        self.overflowed = true;
    }

    /// Every event about listed names has been read.
    pub fn forget_found(&mut self) {
        self.found.clear();
    }

    /// Appends the records of this turn, and begins the next.
    pub fn take(&mut self, records: &mut Vec<u8>) {
        records.append(&mut self.records);
        self.count = 0;
        if std::mem::take(&mut self.overflowed) {
            let overflow =
                WatchEvent { change: Change::Overflow, path: Vec::new().into(), from: None };
            encode_record(&overflow, records);
        }
    }

    fn push(&mut self, event: &WatchEvent) {
        if self.count == WATCH_RECORDS_MAX {
            self.overflowed = true;
            return;
        }
        self.count += 1;
        encode_record(event, &mut self.records);
    }
}

#[cfg(test)]
mod tests {
    use protocol::watch::parse_record;

    use super::*;

    fn taken(emitted: &mut Emitted) -> Vec<(Change, String)> {
        let mut bytes = Vec::new();
        emitted.take(&mut bytes);
        let mut rest = bytes.as_slice();
        let mut events = Vec::new();
        while let Some((event, length)) = parse_record(rest).unwrap() {
            events.push((event.change, event.path.to_string()));
            rest = &rest[length..];
        }
        events
    }

    #[test]
    fn listed_names_are_not_reported_again_by_their_event() {
        let mut emitted = Emitted::default();
        emitted.found(b"d/a".to_vec());
        assert!(!emitted.event_created(b"d/a"));
        assert!(emitted.event_created(b"d/b"));
        let expected = [(Change::Created, "d/a".to_owned()), (Change::Created, "d/b".to_owned())];
        assert_eq!(taken(&mut emitted), expected);
    }

    #[test]
    fn a_listed_name_that_is_recreated_is_reported_again() {
        let mut emitted = Emitted::default();
        emitted.found(b"a".to_vec());
        emitted.removed(b"a".to_vec());
        assert!(emitted.event_created(b"a"));
        emitted.found(b"b".to_vec());
        emitted.forget_found();
        assert!(emitted.event_created(b"b"));
    }

    #[test]
    fn too_many_records_end_with_one_overflow() {
        let mut emitted = Emitted::default();
        for number in 0..2 * WATCH_RECORDS_MAX {
            emitted.emit(Change::Modified, number.to_string().into_bytes());
        }
        let events = taken(&mut emitted);
        assert_eq!(events.len(), WATCH_RECORDS_MAX + 1);
        assert_eq!(events.last(), Some(&(Change::Overflow, String::new())));
        assert_eq!(taken(&mut emitted), []);
    }
}
