//! What the SDK calls: one value for each session over lines or HTTP, and one for each call of the
//! clients whose protocol has no sessions.

use std::sync::{Arc, Weak};

use hyper::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::resources;
use super::session::Session;
use super::tool::Work;
use super::tools;
use crate::body::Hold;
use crate::caller::Caller;
use crate::trail::Trail;
use crate::{Api, Inner};
use access::audit::{Door, Entry, Who};

/// The instructions for models about all tools together: what the sandbox has, what it reaches, and how to get
/// packages. Three sentences, because every conversation begins with them.
const INSTRUCTIONS: &str = include_str!("instructions.md");
/// Stands for what the sandbox reaches.
const NETWORK: &str = "{network}";
/// Stands for the workspace, if it has one.
const USERS_FILES: &str = "{workspace}";
/// Rules that are named; further ones are counted.
const RULES_NAMED_MAX: usize = 8;

/// The longest name that is repeated to the client.
const NAME_CHARS_SHOWN: usize = 64;

/// See the module's description.
pub struct Server {
    /// A session must not keep the door alive: the door keeps the sessions.
    api: Weak<Inner>,
    session: Arc<Session>,
}

/// The sender of a request over HTTP, which goes with it through the SDK.
#[derive(Clone)]
pub struct HttpCaller {
    caller: Caller,
    /// The caller's own session, where the protocol has none.
    session: Option<Arc<Session>>,
    /// That of the message, in which its calls have theirs.
    trail: Trail,
    /// Whether another node may carry its calls out.
    carries: bool,
    /// Its session is not idle while the call goes on, even when its client is gone.
    _busy: Option<Hold>,
}

impl HttpCaller {
    pub fn new(
        caller: Caller,
        session: Option<Arc<Session>>,
        busy: Option<Hold>,
        (trail, carries): (Trail, bool),
    ) -> Self {
        Self { caller, session, trail, carries, _busy: busy }
    }
}

impl Server {
    pub fn new(api: &Api, session: Arc<Session>) -> Self {
        Self { api: Arc::downgrade(&api.0), session }
    }

    fn work(&self, context: RequestContext<RoleServer>) -> Result<Work, ErrorData> {
        let api = self.api.upgrade().map(Api);
        let api = api.ok_or_else(|| ErrorData::internal_error("the server is stopping", None))?;
        let (caller, session, trail, carries) = match context.extensions.get::<Parts>() {
            // A client of the control socket may do everything.
            None => {
                let entry = Entry::new(Who::Local, Door::Mcp, "mcp_session");
                let trail = Trail::begin(api.ends(), entry, true, None);
                trail.forget();
                (Caller::Local, Arc::clone(&self.session), trail, true)
            }
            Some(parts) => {
                let sent = parts.extensions.get::<HttpCaller>().cloned();
                let Some(HttpCaller { caller, session, trail, carries, .. }) = sent else {
                    return Err(ErrorData::internal_error("a request of nobody", None));
                };
                (caller, session.unwrap_or_else(|| Arc::clone(&self.session)), trail, carries)
            }
        };
        let is_operator = context.extensions.get::<Parts>().is_none();
        let memory = api.budget().share(&caller);
        Ok(Work { api, caller, session, trail, carries, is_operator, memory, context })
    }
}

fn instructions(egress: &[String], has_workspace: bool) -> String {
    let network = if egress.is_empty() {
        "The sandbox has no network.".to_owned()
    } else {
        let named: Vec<_> = egress.iter().take(RULES_NAMED_MAX).map(String::as_str).collect();
        let more = egress.len().saturating_sub(RULES_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("The sandbox reaches these hosts and no others: {}{more}.", named.join(", "))
    };
    let workspace = if has_workspace { ", with the user's files at `/workspace`," } else { "" };
    let text = INSTRUCTIONS.trim_end().replace(NETWORK, &network).replace(USERS_FILES, workspace);
    if egress.is_empty() {
        return text;
    }
    text.replace("For packages,", "For packages that these hosts do not have,")
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let implementation =
            Implementation::new("burrow", env!("CARGO_PKG_VERSION")).with_title("Burrow");
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(instructions(&self.session.egress(), self.session.has_workspace()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|entry| entry.tool.clone())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools::all().iter().map(|entry| entry.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let entry = tools::find(&request.name).ok_or_else(|| {
            let name: String = request.name.chars().take(NAME_CHARS_SHOWN).collect();
            let message = format!("there is no tool {name:?}; tools/list lists the tools");
            ErrorData::invalid_params(message, None)
        })?;
        let work = self.work(context)?;
        Ok(entry.call(work, request.arguments.unwrap_or_default()).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let work = self.work(context)?;
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&work, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let work = self.work(context)?;
        Ok(resources::read(&work, &request.uri).await?.into())
    }
}
