//! A tool as a row of the table, and a call of one as its function sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::carried;
use super::hints;
use super::outline::outline;
use super::schema;
use crate::forms::problem::Problem;
use crate::trail::Trail;
use access::audit::Door;
use access::keys::Access;
use sandbox::refusal::{Code, Refusal};

/// The key of a refusal for programs; people and models read its text.
pub const PROBLEM_META: &str = "burrow/problem";
/// How many milliseconds the call waited for a sandbox that was asleep.
const WOKE_META: &str = "burrow/woke_ms";

pub use super::work::{Entered, Work};

type Answering = Pin<Box<dyn Future<Output = Result<CallToolResult, Refusal>> + Send>>;
type Handler = Arc<dyn Fn(Work, JsonObject) -> Answering + Send + Sync>;

/// See the module's description.
#[derive(Clone)]
pub struct Entry {
    pub tool: Tool,
    /// What a key must allow.
    pub access: Access,
    handler: Handler,
}

/// What a tool changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It only looks.
    Reads,
    /// It adds something with every call.
    Makes,
    /// It adds something, and with the same arguments nothing more.
    Ensures,
    /// It may replace what is there.
    Writes,
    /// It ends something; to ask again does nothing more.
    Ends,
    /// It runs whatever it is given, which may do anything, also beyond the sandbox as far as that
    /// reaches.
    Runs,
}

/// What a tool gives back: for models to read, and for programs.
pub struct Answer<O> {
    /// The structure as lines, when there is nothing here.
    pub content: Vec<ContentBlock>,
    pub structured: O,
    /// Whether the request has failed. The content is the same.
    pub is_error: bool,
}

/// Makes a row of a function.
pub fn tool<P, O, F, A>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    access: Access,
    effect: Effect,
    handler: F,
) -> Entry
where
    P: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + 'static,
    F: Fn(Work, P) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Answer<O>, Refusal>> + Send + 'static,
{
    let tool = Tool::new(name, description, schema::input::<P>())
        .with_title(title)
        .with_raw_output_schema(schema::output::<O>())
        .with_annotations(effect.annotations());
    let handler = Arc::new(handler);
    let handler: Handler = Arc::new(move |work, arguments| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let request = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
                Refusal::invalid(format!("invalid arguments of {name}: {error}"))
                    .hint("see the tool's input schema")
            })?;
            handler(work, request).await?.into_result()
        })
    });
    Entry { tool, access, handler }
}

impl Entry {
    /// Answers a call. A refusal is an answer too, which the model can read.
    pub async fn call(&self, work: Work, arguments: JsonObject) -> CallToolResult {
        let trail = self.trail(&work, &arguments);
        let session = Arc::clone(&work.session);
        let answered = match trail.admit() {
            Ok(()) => self.carry_out(Work { trail: trail.clone(), ..work }, arguments).await,
            Err(problem) => Err(problem),
        };
        if let Some(own) = session.own().filter(|_| !trail.has_sandbox()) {
            trail.sandbox(&own);
        }
        let mut result = answered.unwrap_or_else(|problem| {
            trail.ended(Some(problem.code));
            refused(&problem)
        });
        if let Some(woke_ms) = trail.woke_ms() {
            let meta = result.meta.get_or_insert_with(|| MetaObject(JsonObject::new()));
            meta.0.insert(WOKE_META.to_owned(), woke_ms.into());
        }
        result
    }

    /// The call's own way into the audit log, with what its arguments say before they are checked.
    fn trail(&self, work: &Work, arguments: &JsonObject) -> Trail {
        let trail = work.trail.within(Door::Mcp, &self.tool.name, self.access == Access::Read);
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        // A tool that makes a sandbox gives it its name.
        let name = text("sandbox").or_else(|| text("name"));
        if let Some(which) = name.and_then(|name| work.named(name).ok()) {
            trail.sandbox(&which);
        }
        trail
    }

    async fn carry_out(
        &self,
        work: Work,
        arguments: JsonObject,
    ) -> Result<CallToolResult, Refusal> {
        if !work.caller.may(self.access) {
            let message = format!("this key may not do that: it needs the scope {}", self.access);
            let hint = "`host-bridge keygen --scope` makes a key with more scopes";
            return Err(Refusal::new(Code::Forbidden, message).hint(hint));
        }
        if let Some(to) = carried::node_of_call(&work, &arguments).await? {
            return carried::call(&work, &self.tool.name, arguments, &to).await;
        }
        let (memory, api, session) =
            (work.memory.clone(), work.api.clone(), Arc::clone(&work.session));
        let named = arguments.get("sandbox").and_then(Value::as_str);
        let named = named.and_then(|name| work.named(name).ok());
        let answered = tokio::select! {
            biased;
            answered = (self.handler)(work, arguments) => answered,
            problem = memory.exceeded() => Err(problem),
        };
        match (answered, named.or_else(|| session.own())) {
            (Err(problem), Some(which)) => Err(api.explained(&which, problem).await),
            (answered, _) => answered,
        }
    }
}

impl Effect {
    /// Without the title, which the tool has, and without `idempotentHint` where it is MCP's default.
    fn annotations(self) -> ToolAnnotations {
        let (destroys, repeats) = match self {
            Self::Reads => {
                return ToolAnnotations::new().read_only(true).open_world(false);
            }
            Self::Makes => (false, false),
            Self::Ensures => (false, true),
            Self::Writes | Self::Runs => (true, false),
            Self::Ends => (true, true),
        };
        let known = ToolAnnotations::new()
            .read_only(false)
            .destructive(destroys)
            .open_world(self == Self::Runs);
        if repeats { known.idempotent(true) } else { known }
    }
}

impl<O: Serialize> Answer<O> {
    /// Of a structure that speaks for itself.
    pub fn of(structured: O) -> Self {
        Self { content: Vec::new(), structured, is_error: false }
    }

    fn into_result(self) -> Result<CallToolResult, Refusal> {
        let Self { mut content, structured, is_error } = self;
        let written = serde_json::to_value(structured);
        let structured =
            written.map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
        if content.is_empty() {
            content.push(ContentBlock::text(outline(&structured)));
        }
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(structured);
        result.is_error = Some(is_error);
        Ok(result)
    }
}

/// A refusal. It has no structure: clients hold that against the schema of what succeeds.
fn refused(refusal: &Refusal) -> CallToolResult {
    let body = Problem::new(refusal, hints::words);
    let hint = body.hint.as_ref().map_or_else(String::new, |hint| format!("\n{hint}"));
    // The output of a program before it failed is for models to read, too.
    let log = body.details.as_ref().and_then(|details| details.get("log")?.as_str());
    let log =
        log.filter(|log| !log.is_empty()).map_or_else(String::new, |log| format!("\n\n{log}"));
    let text = format!("{}: {}{hint}{log}", refusal.code.name(), body.message);
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    if let Ok(problem) = serde_json::to_value(&body) {
        result.meta = Some(MetaObject(JsonObject::from_iter([(PROBLEM_META.to_owned(), problem)])));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_tools_are_marked_read_only_and_running_ones_destructive() {
        let reads = Effect::Reads.annotations();
        assert_eq!((reads.read_only_hint, reads.destructive_hint), (Some(true), None));
        let runs = Effect::Runs.annotations();
        assert_eq!((runs.destructive_hint, runs.open_world_hint), (Some(true), Some(true)));
        let ends = Effect::Ends.annotations();
        assert_eq!((ends.destructive_hint, ends.idempotent_hint), (Some(true), Some(true)));
        let makes = Effect::Makes.annotations();
        assert_eq!((makes.destructive_hint, makes.open_world_hint), (Some(false), Some(false)));
    }

    #[test]
    fn a_refusal_is_text_for_a_model_and_a_code_for_a_program() {
        let result = refused(&Refusal::not_found("there is no x").hint("make one"));
        assert_eq!(result.is_error, Some(true));
        let text = result.content[0].as_text().expect("text").text.clone();
        assert_eq!(text, "not_found: there is no x\nmake one");
        assert!(result.structured_content.is_none());
        let meta = result.meta.expect("a problem");
        assert_eq!(meta.0[PROBLEM_META]["code"], "not_found");
    }
}
