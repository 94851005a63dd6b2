//! The artifacts of a call as its answer lists them: each by name, and small pictures as images.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::ContentBlock;

use super::limits::{ARTIFACTS_NAMED_MAX, KEPT_PICTURE_BYTES_MAX, KEPT_PICTURES_MAX};
use crate::Api;
use crate::call::Inside;
use crate::capture::Capture;
use crate::forms::artifacts::{Captured, KeptArtifact};
use host::mime::is_picture;
use services::artifact::{self, Category, Scene};
use services::store::artifacts::ArtifactRow;

/// Begins to keep what a call leaves, where artifacts are kept at all.
pub async fn begin(api: &Api, inside: &Inside, scene: Scene) -> Option<Capture> {
    Capture::begin(api, inside, scene).await.ok()
}

/// What a call has left.
#[derive(Debug, Default)]
pub struct CapturedResult {
    pub captured: Captured,
    /// Pictures among the files; those that were shown are in the answer already.
    pub pictures: Vec<ContentBlock>,
    /// The text about all of it.
    pub words: Option<String>,
}

/// Ends what [`begin`] has begun.
pub async fn end(api: &Api, capture: Option<Capture>, run: Option<u64>) -> CapturedResult {
    let Some(capture) = capture else { return CapturedResult::default() };
    result(api, capture.end(run).await).await
}

/// The text about what was kept.
pub async fn result(api: &Api, captured: artifact::Captured) -> CapturedResult {
    let pictures = pictures(api, &captured).await;
    let captured = Captured::from(captured);
    let words = words(&captured);
    CapturedResult { captured, pictures, words }
}

async fn pictures(api: &Api, captured: &artifact::Captured) -> Vec<ContentBlock> {
    let Ok(artifacts) = api.artifacts() else { return Vec::new() };
    let shown = Category::Figure.name();
    let is_small = |row: &&ArtifactRow| {
        is_picture(&row.mime) && row.category != shown && row.size <= KEPT_PICTURE_BYTES_MAX
    };
    let mut pictures = Vec::new();
    for row in captured.artifacts.iter().filter(is_small).take(KEPT_PICTURES_MAX) {
        // One that cannot be read is still named.
        if let Ok(bytes) = artifacts.read_range(row, 0, KEPT_PICTURE_BYTES_MAX).await {
            pictures.push(ContentBlock::image(STANDARD.encode(bytes), row.mime.clone()));
        }
    }
    pictures
}

fn words(captured: &Captured) -> Option<String> {
    let count = captured.artifacts.len();
    let named = |artifact: &KeptArtifact| {
        let KeptArtifact { name, kind, size, id, .. } = artifact;
        format!("{name:?} ({kind}, {size} bytes, id {id})")
    };
    let shown: Vec<_> = captured.artifacts.iter().take(ARTIFACTS_NAMED_MAX).map(named).collect();
    let more = count.saturating_sub(ARTIFACTS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let files = (count > 0).then(|| format!("artifacts: {}{more}", shown.join(", ")));
    let left = captured.left_out.len();
    let first = captured.left_out.first().map(|one| {
        let others = if left > 1 { " (`artifacts_left_out` lists all)" } else { "" };
        format!("not kept: {:?}: {}{others}", one.path, one.reason)
    });
    match (files, first) {
        (Some(files), Some(first)) => Some(format!("{files}; {first}")),
        (files, first) => files.or(first),
    }
}
