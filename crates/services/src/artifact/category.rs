//! The categories of artifacts. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an artifact is to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A file that is a picture.
    Image,
    /// A display, in any form.
    Figure,
    Video,
    Audio,
    Document,
    Data,
    Code,
    Archive,
    Text,
    Other,
}

/// It is not one of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a category; the categories are image, figure, video, audio, document, data, \
    code, archive, text and other"
)]
pub struct UnknownCategory(pub String);

/// By the prefix of a MIME type, the more specific first.
const BY_BEGINNING: [(&str, Category); 36] = [
    ("image/", Category::Image),
    ("video/", Category::Video),
    ("audio/", Category::Audio),
    ("application/pdf", Category::Document),
    ("application/rtf", Category::Document),
    ("application/epub", Category::Document),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml", Category::Data),
    ("application/vnd.openxmlformats-officedocument", Category::Document),
    ("application/vnd.oasis.opendocument", Category::Document),
    ("text/html", Category::Document),
    ("text/markdown", Category::Document),
    ("text/x-tex", Category::Document),
    ("text/latex", Category::Document),
    ("text/csv", Category::Data),
    ("text/tab-separated-values", Category::Data),
    ("application/json", Category::Data),
    ("application/x-ndjson", Category::Data),
    ("application/xml", Category::Data),
    ("application/yaml", Category::Data),
    ("application/toml", Category::Data),
    ("application/vnd.apache.parquet", Category::Data),
    ("application/vnd.sqlite3", Category::Data),
    ("application/x-npy", Category::Data),
    ("application/x-npz", Category::Data),
    ("application/x-pickle", Category::Data),
    ("application/x-hdf5", Category::Data),
    ("application/x-ipynb", Category::Code),
    ("application/sql", Category::Code),
    ("text/javascript", Category::Code),
    ("text/css", Category::Code),
    ("text/x-", Category::Code),
    ("application/zip", Category::Archive),
    ("application/gzip", Category::Archive),
    ("application/x-tar", Category::Archive),
    ("application/x-bzip2", Category::Archive),
    ("application/x-xz", Category::Archive),
];

impl Category {
    pub const ALL: [Self; 10] = [
        Self::Image,
        Self::Figure,
        Self::Video,
        Self::Audio,
        Self::Document,
        Self::Data,
        Self::Code,
        Self::Archive,
        Self::Text,
        Self::Other,
    ];

    /// The category of a file with this MIME type.
    pub fn of(mime: &str) -> Self {
        let found = BY_BEGINNING.iter().find(|(beginning, _)| mime.starts_with(beginning));
        match found {
            Some((_, category)) => *category,
            None if mime.starts_with("text/") => Self::Text,
            None => Self::Other,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Figure => "figure",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Document => "document",
            Self::Data => "data",
            Self::Code => "code",
            Self::Archive => "archive",
            Self::Text => "text",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Category {
    type Err = UnknownCategory;

    fn from_str(text: &str) -> Result<Self, UnknownCategory> {
        let found = Self::ALL.into_iter().find(|category| category.name() == text);
        found.ok_or_else(|| UnknownCategory(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_is_read_as_it_is_named() {
        for category in Category::ALL {
            assert_eq!(category.name().parse(), Ok(category));
            assert_eq!(serde_json::to_value(category).unwrap(), category.name());
        }
        assert!("Image".parse::<Category>().is_err());
    }

    #[test]
    fn a_type_has_the_category_that_a_person_would_look_under() {
        for (mime, category) in [
            ("image/svg+xml", Category::Image),
            ("text/x-python", Category::Code),
            ("text/x-tex", Category::Document),
            ("text/plain", Category::Text),
            ("application/zip", Category::Archive),
            ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Category::Data),
            ("application/octet-stream", Category::Other),
        ] {
            assert_eq!(Category::of(mime), category, "{mime}");
        }
    }
}
