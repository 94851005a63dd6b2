//! A value that leaves no trace: `Debug` does not show it, and its memory is overwritten when it is
//! dropped.

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

use super::error::ProviderError;
use super::limits::SECRET_BYTES_MAX;

/// A secret's value: text without zero bytes, of bounded length. Only [`Secret::expose`] shows it. It cannot
/// be serialized or printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// From a provider's output, without the line break that ends a file of one line.
    pub fn of(mut bytes: Vec<u8>) -> Result<Self, ProviderError> {
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        let wrong = if bytes.is_empty() {
            Some(ProviderError::Empty)
        } else if bytes.len() > SECRET_BYTES_MAX {
            Some(ProviderError::TooLong)
        } else if bytes.contains(&0) {
            Some(ProviderError::Zero)
        } else {
            None
        };
        if let Some(wrong) = wrong {
            wipe(&mut bytes);
            return Err(wrong);
        }
        String::from_utf8(bytes).map(Self).map_err(|error| {
            wipe(&mut error.into_bytes());
            ProviderError::NotText
        })
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe_text(&mut self.0);
    }
}

/// Bytes with secrets in them, on their way: written over when they are dropped.
pub struct Wiped(Vec<u8>);

impl Wiped {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Wiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiped({} bytes)", self.0.len())
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Clears a text and overwrites its memory.
pub fn wipe_text(text: &mut String) {
    wipe(&mut std::mem::take(text).into_bytes());
}

/// Overwrites the whole capacity of a vector. The write is volatile, so that the compiler does not
/// remove it.
pub fn wipe(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(bytes.capacity(), 0);
    black_box(bytes.as_slice());
    bytes.clear();
}
