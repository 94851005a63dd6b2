//! Files that a client has open: their paths and what they are open for. Nothing is held open in the sandbox;
//! each read and write opens the file again by the rule for paths.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::msb::limits::HANDLES_MAX;
use sandbox::refusal::{Code, Refusal};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub path: String,
    pub reads: bool,
    pub writes: bool,
    pub appends: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Handles(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    opened: HashMap<u64, Opened>,
}

impl Handles {
    pub fn open(&self, file: Opened) -> Result<u64, Refusal> {
        let mut table = self.lock();
        if table.opened.len() >= HANDLES_MAX {
            let message = format!("a connection has at most {HANDLES_MAX} files open");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        table.last += 1;
        let handle = table.last;
        table.opened.insert(handle, file);
        Ok(handle)
    }

    pub fn get(&self, handle: u64) -> Result<Opened, Refusal> {
        self.lock().opened.get(&handle).cloned().ok_or_else(|| unknown(handle))
    }

    pub fn close(&self, handle: u64) -> Result<(), Refusal> {
        self.lock().opened.remove(&handle).map(drop).ok_or_else(|| unknown(handle))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(handle: u64) -> Refusal {
    Refusal::new(Code::Invalid, format!("there is no open file {handle}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_so_many_files_and_no_more() {
        let handles = Handles::default();
        let file = Opened { path: "/a".to_owned(), reads: true, writes: false, appends: false };
        let opened: Vec<u64> =
            (0..HANDLES_MAX).map(|_| handles.open(file.clone()).unwrap()).collect();
        assert_eq!(handles.open(file.clone()).unwrap_err().code, Code::LimitReached);
        handles.close(opened[0]).unwrap();
        assert_eq!(handles.get(opened[0]).unwrap_err().code, Code::Invalid);
        assert!(handles.close(opened[0]).is_err());
        let again = handles.open(file.clone()).unwrap();
        assert!(!opened.contains(&again));
        assert_eq!(handles.get(again), Ok(file));
    }
}
