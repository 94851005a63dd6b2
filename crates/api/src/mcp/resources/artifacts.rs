//! Artifacts of runs as resources: listed with the newest first, and read by their ids.

use rmcp::model::{Resource, ResourceTemplate};

use super::{Answering, Page, ResourceContent, Source};
use crate::mcp::limits::RESOURCE_BYTES_MAX;
use crate::mcp::tool::Work;
use host::mime;
use sandbox::Name;
use sandbox::refusal::{Code, Hint, Refusal};
use services::artifact::{ArtifactError, ArtifactId};
use services::store::artifacts::{ArtifactFilter, ArtifactRow};

const PREFIX: &str = "burrow://artifacts/";
const TEMPLATE: &str = "burrow://artifacts/{namespace}/{id}";

pub struct Artifacts;

impl Source for Artifacts {
    fn prefix(&self) -> &'static str {
        PREFIX
    }

    fn template(&self) -> ResourceTemplate {
        ResourceTemplate::new(TEMPLATE, "artifact").with_title("An artifact").with_description(
            "An artifact of a run, by the id that `list_artifacts` and the results of runs give. \
            Text comes as text, everything else as a blob.",
        )
    }

    fn list<'a>(&'a self, work: &'a Work, after: &'a str, count_max: usize) -> Answering<'a, Page> {
        Box::pin(list(work, after, count_max))
    }

    fn read<'a>(&'a self, work: &'a Work, rest: &'a str) -> Answering<'a, ResourceContent> {
        Box::pin(read(work, rest))
    }
}

async fn list(work: &Work, after: &str, count_max: usize) -> Result<Page, Refusal> {
    let namespace = work.session.namespace(&work.caller);
    let Some(artifacts) = work.api.artifact_store() else { return Ok(Page::default()) };
    if !work.caller.covers(&namespace) {
        return Ok(Page::default());
    }
    let below = match after {
        "" => None,
        number => Some(
            number.parse().map_err(|_| Refusal::invalid("the cursor is not from this server"))?,
        ),
    };
    let namespace = Some(namespace.to_string());
    let which = ArtifactFilter { namespace, below, ..ArtifactFilter::default() };
    let mut rows = artifacts.list(which, count_max as u64 + 1).await?;
    let more = rows.len() > count_max;
    rows.truncate(count_max);
    let next = rows.last().filter(|_| more).map(|row| row.number.to_string());
    Ok(Page { resources: rows.iter().map(resource).collect(), next })
}

fn resource(row: &ArtifactRow) -> Resource {
    Resource::new(uri(row), row.name.clone()).with_mime_type(row.mime.clone()).with_size(row.size)
}

fn uri(row: &ArtifactRow) -> String {
    format!("{PREFIX}{}/{}", row.namespace, row.id)
}

async fn read(work: &Work, rest: &str) -> Result<ResourceContent, Refusal> {
    let none = || Refusal::not_found("there is no such artifact").hint(Hint::ListArtifacts);
    let (namespace, id) = rest.split_once('/').ok_or_else(none)?;
    let namespace: Name = namespace.parse().map_err(|_| none())?;
    let id: ArtifactId = id.parse().map_err(|_| none())?;
    // A caller without access must not learn whether it exists.
    if !work.caller.covers(&namespace) {
        return Err(none());
    }
    let artifacts = work.api.artifacts()?;
    let row = artifacts.get(&id).await.map_err(|error| match error {
        ArtifactError::NotFound { .. } => none(),
        error => error.into(),
    })?;
    if row.namespace != namespace.as_str() {
        return Err(none());
    }
    if row.size > RESOURCE_BYTES_MAX as u64 {
        let message = format!("{} has more than {RESOURCE_BYTES_MAX} bytes", row.name);
        let hint = "`read_artifact` of the HTTP API reads it in parts";
        return Err(Refusal::new(Code::TooLarge, message).hint(hint));
    }
    work.memory.grow(row.size as usize)?;
    let bytes = artifacts.read_range(&row, 0, row.size).await?;
    let is_text = mime::text(&bytes).is_some_and(|text| text.len() == bytes.len());
    Ok(ResourceContent { mime_type: row.mime, bytes, is_text })
}
