//! Templates over E2B's REST calls: built by steps on an image of this server, tagged, listed, removed. What they
//! make are this server's own templates, in the namespace of the key.

use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::CONTROL;
use super::builds::Build;
use super::connect::Message;
use super::control::draw;
use super::forms::{field, fields, pairs};
use super::limits::{BUILD_LOG_PAGE_MAX, ENVD_VERSION, TAGS_MAX};
use super::recipe::is_hash;
use super::replies::is_usual;
use super::uploads;
use crate::Api;
use crate::body::json_response;
use crate::call::Call;
use crate::caller::Caller;
use crate::creation::namespace_of;
use crate::route::{Asked, Operation, operation};
use crate::shape::{Done, Nothing, Octets, Raw};
use access::keys::Access;
use host::hex::digits;
use host::id::random_bytes;
use host::instant::format;
use sandbox::refusal::{Code, Refusal};
use sandbox::template::InvalidTemplateName;
use sandbox::{Name, SandboxRef, TemplateInfo, TemplateName, TemplateRef};

/// The part of an upload's link that opens it.
const LINK: &str = "link";
const FILES: &str = "/templates/{template}/files/{hash}";

pub fn operations() -> Vec<Operation> {
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    [
        operation(post.clone(), "/v3/templates", "e2b_new_build", "Begin a template.", request)
            .run(),
        operation(
            get.clone(),
            "/templates/{template}/builds/{build}/status",
            "e2b_build_status",
            "Look at a build.",
            status,
        ),
        operation(get.clone(), FILES, "e2b_upload_link", "Ask where to upload files.", link).run(),
        operation(put, FILES, "e2b_upload", "Upload files for a build.", upload)
            .access(Some(Access::Run))
            .known_by(uploader),
        operation(post, "/templates/tags", "e2b_tag", "Tag a build.", assign).run(),
        operation(delete.clone(), "/templates/tags", "e2b_untag", "Remove tags.", untag).run(),
        operation(
            get.clone(),
            "/templates/{template}/tags",
            "e2b_tags",
            "List the tags of a template.",
            tags,
        ),
        operation(get.clone(), "/templates", "e2b_templates", "List templates.", list),
        operation(get.clone(), "/v2/templates", "e2b_templates_2", "List templates.", list),
        operation(
            delete,
            "/templates/{template}",
            "e2b_remove_template",
            "Remove a template or a snapshot.",
            remove,
        )
        .run(),
        operation(get, "/templates/aliases/{alias}", "e2b_alias", "Look up a template.", alias),
    ]
    .map(|operation| operation.refusing(CONTROL))
    .to_vec()
}

/// A template to build.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NewBuild {
    name: String,
    tags: Vec<String>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Assign {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Untag {
    name: String,
    tags: Vec<String>,
}

/// A revision as the clients know a build: a UUID.
fn build_id(revision: &str) -> String {
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let parts = parts.map(|part| revision.get(part).unwrap_or_default());
    parts.join("-")
}

fn invalid(error: &InvalidTemplateName) -> Refusal {
    Refusal::invalid(format!("name: {error}"))
}

/// The namespace of the key, and a name in it.
pub fn named(call: &Call, text: &str) -> Result<TemplateRef, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    let name: TemplateName = text.parse().map_err(|error| invalid(&error))?;
    let which = TemplateRef { namespace, name };
    call.trail.fact("template", which.to_string());
    Ok(which)
}

/// The template that the path names, without a tag.
pub fn template(call: &Call) -> Result<TemplateRef, Refusal> {
    named(call, &call.parameter::<String>("template")?)
}

/// The id of a build that the path names, as it is kept.
pub fn build(call: &Call) -> Result<(String, String), Refusal> {
    let shown: String = call.parameter("build")?;
    Ok((shown.replace('-', ""), shown))
}

async fn request(call: Call, _: Nothing, Message(ask): Message<NewBuild>) -> Result<Raw, Refusal> {
    let which = named(&call, &ask.name)?;
    call.reaches(&which.namespace)?;
    let TemplateRef { namespace, name } = which;
    let mut all = vec![name.tag().to_owned()];
    if !ask.tags.is_empty() && !ask.name.contains(':') {
        all.clear();
    }
    all.extend(ask.tags);
    all.dedup();
    let all = checked_tags(&name.base, all)?;
    let drawn = random_bytes::<16>().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let revision = digits(&drawn);
    let cpu_millis = ask.cpu_count.map(|count| count.saturating_mul(1000));
    let limits = (cpu_millis, ask.memory_mb);
    let build = Build::new((namespace, name.base.clone()), all.clone(), limits);
    call.api.e2b().builds.add(revision.clone(), build)?;
    let answer = json!({
        "templateID": name.base, "buildID": build_id(&revision), "public": false,
        "names": [name.base], "aliases": [name.base], "tags": all,
    });
    Ok(Raw(json_response(StatusCode::ACCEPTED, &answer)))
}

fn checked_tags(base: &Name, tags: Vec<String>) -> Result<Vec<String>, Refusal> {
    if tags.is_empty() || tags.len() > TAGS_MAX {
        return Err(Refusal::invalid(format!("tags: give 1 to {TAGS_MAX}, not {}", tags.len())));
    }
    for tag in &tags {
        TemplateName::tagged(base.clone(), tag).map_err(|error| invalid(&error))?;
    }
    Ok(tags)
}

async fn status(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = template(&call)?;
    let (id, shown) = build(&call)?;
    let fields = fields(&call)?;
    let number = |name, usual| {
        field(&fields, name)
            .map_or(Ok(usual), str::parse)
            .map_err(|_| Refusal::invalid(format!("{name} must be a number")))
    };
    let page = (number("logsOffset", 0)?, number("limit", BUILD_LOG_PAGE_MAX)?);
    let builds = &call.api.e2b().builds;
    let answer = builds.status((&id, &shown), &which.namespace, &which.name.base, page)?;
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

async fn link(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = template(&call)?;
    let hash: String = call.parameter("hash")?;
    if !is_hash(&hash) {
        return Err(Refusal::invalid("the hash in the path is not a digest in hexadecimal digits"));
    }
    let mut answer = json!({ "present": true });
    if !uploads::place(&call, &which.namespace, &hash).exists() {
        let grant = match &call.caller {
            Caller::Holder(grant) => Some(grant.clone()),
            Caller::Anybody | Caller::Local | Caller::Visitor(_) => None,
        };
        let token = call.api.e2b().uploads.draw(grant, &which.namespace, &hash)?;
        let (origin, name) = (call.origin(), &which.name.base);
        let url = format!("{origin}/templates/{name}/files/{hash}?{LINK}={token}");
        answer = json!({ "present": false, "url": url });
    }
    Ok(Raw(json_response(StatusCode::CREATED, &answer)))
}

/// Lets in by the link, which has the rights of the key that it was given to.
fn uploader(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    let fields = pairs(asked.query)?;
    let link = api.e2b().uploads.find(field(&fields, LINK).unwrap_or_default())?;
    api.door().readmit(link.grant.as_ref(), asked.peer)
}

async fn upload(mut call: Call, _: Nothing, _: Octets) -> Result<Raw, Refusal> {
    let (fields, hash) = (fields(&call)?, call.parameter::<String>("hash")?);
    let token = field(&fields, LINK).unwrap_or_default();
    let link = call.api.e2b().uploads.find(token)?;
    if link.hash != hash {
        return Err(Refusal::new(Code::Forbidden, "this link is for other files"));
    }
    uploads::write(&mut call, &link).await?;
    call.api.e2b().uploads.spend(token);
    Ok(Raw(json_response(StatusCode::OK, &json!({}))))
}

/// The templates of a name, one for each tag.
fn all_of(call: &Call, which: &TemplateRef) -> Vec<TemplateInfo> {
    let mut all = call.api.registry().templates(Some(&which.namespace));
    all.retain(|info| info.name.base == which.name.base);
    all
}

fn missing(text: &str) -> Refusal {
    let shown: String = text.chars().take(128).collect();
    Refusal::not_found(format!("there is no template {shown:?}"))
}

async fn assign(call: Call, _: Nothing, Message(ask): Message<Assign>) -> Result<Raw, Refusal> {
    let which = named(&call, &ask.target)?;
    let tags = checked_tags(&which.name.base, ask.tags)?;
    let registry = call.api.registry();
    let template = registry.stored_template(&which)?;
    let copies = tags.iter().map(|tag| {
        let name = TemplateName::tagged(which.name.base.clone(), tag);
        let name = name.map_err(|error| invalid(&error))?;
        Ok(sandbox::Template { name, ..template.clone() })
    });
    let copies: Result<Vec<_>, Refusal> = copies.collect();
    registry.put_templates(copies?).await?;
    let answer = json!({ "tags": tags, "buildID": build_id(&template.revision) });
    Ok(Raw(json_response(StatusCode::CREATED, &answer)))
}

async fn untag(call: Call, _: Nothing, Message(ask): Message<Untag>) -> Result<Done, Refusal> {
    let which = named(&call, &ask.name)?;
    for tag in checked_tags(&which.name.base, ask.tags)? {
        let name = TemplateName::tagged(which.name.base.clone(), &tag);
        let name = name.map_err(|error| invalid(&error))?;
        let which = TemplateRef { namespace: which.namespace.clone(), name };
        call.api.registry().remove_template(&which).await?;
    }
    Ok(Done)
}

async fn tags(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = template(&call)?;
    let all = all_of(&call, &which);
    if all.is_empty() {
        return Err(missing(&which.name.to_string()));
    }
    let shown = |info: &TemplateInfo| {
        json!({
            "tag": info.name.tag(), "buildID": build_id(&info.revision),
            "createdAt": format(info.created_at_ms),
        })
    };
    let shown: Vec<Value> = all.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &shown)))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let namespace = call.one_namespace(None)?;
    let all = call.api.registry().templates(namespace.as_ref());
    let shown = |info: &TemplateInfo| {
        let options = &info.options;
        let at = format(info.created_at_ms);
        json!({
            "templateID": info.name, "buildID": build_id(&info.revision), "public": false,
            "aliases": [info.name], "names": [info.name], "cpuCount": options.cpu_millis.unwrap_or(1000) / 1000,
            "memoryMB": options.memory_mib.unwrap_or(0), "diskSizeMB": 0, "createdAt": at, "updatedAt": at,
            "createdBy": null, "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1,
            "envdVersion": ENVD_VERSION, "buildStatus": "ready",
        })
    };
    let shown: Vec<Value> = all.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &shown)))
}

/// Removes a template with all its tags, one tag, or a snapshot.
async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let text: String = call.parameter("template")?;
    let which = named(&call, &text).map_err(|_| missing(&text))?;
    let registry = call.api.registry();
    let mut all = all_of(&call, &which);
    if text.contains(':') {
        all.retain(|info| info.name == which.name);
    }
    if all.is_empty() {
        let name = text.parse().map_err(|_| missing(&text))?;
        registry.remove_snapshot(&SandboxRef { namespace: which.namespace, name }).await?;
    }
    for info in all {
        registry.remove_template(&info.which()).await?;
    }
    Ok(Done)
}

async fn alias(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let alias: String = call.parameter("alias")?;
    let namespace = draw(&call)?.namespace;
    let registry = call.api.registry();
    let of_name = alias.parse::<TemplateName>().ok().is_some_and(|name| {
        let which = TemplateRef { namespace: namespace.clone(), name };
        let has_tag = alias.contains(':');
        if has_tag {
            registry.get_template(&which).is_ok()
        } else {
            !all_of(&call, &which).is_empty()
        }
    });
    let snapshot = alias.parse().ok().map(|name| SandboxRef { namespace, name });
    let is_known = of_name
        || is_usual(&alias)
        || call.api.images().contains_key(&alias)
        || registry.images().is_some_and(|images| images.find(&alias).is_ok())
        || snapshot.is_some_and(|which| registry.get_snapshot(&which).is_ok());
    if !is_known {
        return Err(missing(&alias));
    }
    Ok(Raw(json_response(StatusCode::OK, &json!({ "templateID": alias, "public": false }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_a_uuid() {
        let revision = "0123456789abcdef0123456789abcdef";
        assert_eq!(build_id(revision), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(build_id(revision).replace('-', ""), revision);
    }
}
