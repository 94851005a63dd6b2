//! Artifacts as clients see them, and why something is not one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use services::artifact::{self, Category};
use services::store::artifacts::ArtifactRow;

/// An artifact: something kept from a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptArtifact {
    pub id: String,
    /// A name for people; it need not be unique.
    pub name: String,
    /// Its path in the sandbox; absent for displays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<String>,
    /// Its MIME type, found from its first bytes, or else from its name.
    #[serde(rename = "type")]
    pub kind: String,
    pub category: CategoryName,
    /// Its size in bytes.
    pub size: u64,
    /// `sha256:` and hexadecimal digits.
    pub digest: String,
    pub created_ms: u64,
    pub namespace: String,
    pub sandbox: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub notebook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub run: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryName {
    Image,
    /// A display of code.
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

/// Something that did not become an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its path or its name.
    pub path: String,
    /// The reason in words.
    pub reason: String,
}

/// The artifacts of one run, for calls that request them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    pub artifacts: Vec<KeptArtifact>,
    /// What the run left that was not kept.
    pub left_out: Vec<LeftOut>,
}

impl From<ArtifactRow> for KeptArtifact {
    fn from(row: ArtifactRow) -> Self {
        let category = row.category.parse().unwrap_or(Category::Other);
        Self {
            id: row.id,
            name: row.name,
            path: row.path,
            kind: row.mime,
            category: category.into(),
            size: row.size,
            digest: format!("sha256:{}", row.digest),
            created_ms: row.created_ms,
            namespace: row.namespace,
            sandbox: row.sandbox,
            notebook: row.notebook,
            run: row.run,
        }
    }
}

impl From<artifact::Captured> for Captured {
    fn from(captured: artifact::Captured) -> Self {
        let left_out = captured.left_out.into_iter();
        Self {
            artifacts: captured.artifacts.into_iter().map(KeptArtifact::from).collect(),
            left_out: left_out.map(|one| LeftOut { path: one.path, reason: one.reason }).collect(),
        }
    }
}

impl From<Category> for CategoryName {
    fn from(category: Category) -> Self {
        match category {
            Category::Image => Self::Image,
            Category::Figure => Self::Figure,
            Category::Video => Self::Video,
            Category::Audio => Self::Audio,
            Category::Document => Self::Document,
            Category::Data => Self::Data,
            Category::Code => Self::Code,
            Category::Archive => Self::Archive,
            Category::Text => Self::Text,
            Category::Other => Self::Other,
        }
    }
}

impl From<CategoryName> for Category {
    fn from(name: CategoryName) -> Self {
        match name {
            CategoryName::Image => Self::Image,
            CategoryName::Figure => Self::Figure,
            CategoryName::Video => Self::Video,
            CategoryName::Audio => Self::Audio,
            CategoryName::Document => Self::Document,
            CategoryName::Data => Self::Data,
            CategoryName::Code => Self::Code,
            CategoryName::Archive => Self::Archive,
            CategoryName::Text => Self::Text,
            CategoryName::Other => Self::Other,
        }
    }
}
