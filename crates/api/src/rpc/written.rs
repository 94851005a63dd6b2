//! JSON that is encoded already: large output is encoded as it comes, and sent in the pieces that
//! it was encoded in. Pure.

use bytes::Bytes;
use serde::Serialize;

/// The text of a JSON value, or of a part of one, in pieces.
#[derive(Debug, Default)]
pub struct Written(Vec<Vec<u8>>);

impl Written {
    pub fn of(value: &impl Serialize) -> Self {
        Self::default().value(value)
    }

    /// Goes on with text that is JSON, or becomes it with what follows.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        if let Some(last) = self.0.last_mut() {
            last.extend_from_slice(text.as_bytes());
        } else {
            self.0.push(text.as_bytes().to_vec());
        }
        self
    }

    /// Goes on with a value.
    #[must_use]
    pub fn value(mut self, value: &impl Serialize) -> Self {
        // The values of this API are written without fail: their maps have strings for keys.
        self.0.push(serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()));
        self
    }

    /// Goes on with bytes that were written as JSON.
    #[must_use]
    pub fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.0.push(bytes);
        self
    }

    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub fn into_parts(self) -> impl Iterator<Item = Bytes> {
        self.0.into_iter().map(Bytes::from)
    }

    #[cfg(test)]
    pub fn into_bytes(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.0.iter().map(Vec::len).sum());
        for piece in self.0 {
            whole.extend_from_slice(&piece);
        }
        whole
    }
}
