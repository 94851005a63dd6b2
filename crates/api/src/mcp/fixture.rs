//! What the official conformance suite asks of a server for itself: tools, resources and prompts that
//! are there to be tested with. Compiled with the feature `mcp-fixture` alone, which nothing that is
//! shipped has.
//!
//! It is in front of the real server and passes on all other calls, so that the suite goes
//! through the same sessions, checks and transport as everybody else.
#![expect(deprecated, reason = "older versions of the protocol, which still have log levels")]

mod acts;
mod changes;
mod rounds;
mod rows;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CompletionInfo,
    GetPromptRequestParams, GetPromptResponse, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::server::Server;
use rows::{ROWS, find_tool};

/// How many resources one session may watch.
const WATCHED_MAX: usize = 16;
/// What completes each argument.
const COMPLETIONS: [&str; 3] = ["paris", "park", "party"];

/// See the module's description.
pub struct Fixture {
    server: Server,
    watched: Mutex<BTreeSet<String>>,
}

impl From<Server> for Fixture {
    fn from(server: Server) -> Self {
        Self { server, watched: Mutex::default() }
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let mut config = self.server.get_info();
        let capabilities = &mut config.capabilities;
        capabilities.logging = Some(rmcp::model::JsonObject::new());
        capabilities.completions = Some(rmcp::model::JsonObject::new());
        capabilities.tools.get_or_insert_default().list_changed = Some(true);
        capabilities.prompts.get_or_insert_default().list_changed = Some(true);
        capabilities.resources.get_or_insert_default().subscribe = Some(true);
        config
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        find_tool(name).map(|row| row.tool.clone()).or_else(|| self.server.get_tool(name))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.server.list_tools(request, context).await?;
        listed.tools.extend(ROWS.tools.iter().map(|row| row.tool.clone()));
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match find_tool(&request.name) {
            Some(row) => acts::call(row, request, context).await,
            None => self.server.call_tool(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let is_first = request.as_ref().is_none_or(|request| request.cursor.is_none());
        let mut listed = self.server.list_resources(request, context).await?;
        if is_first {
            listed.resources.extend(ROWS.resources.iter().map(|row| row.resource.clone()));
        }
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self.server.list_resource_templates(request, context).await?;
        listed.resource_templates.push(ROWS.template.clone());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match rows::read(&request.uri) {
            Some(found) => Ok(found.into()),
            None => self.server.read_resource(request, context).await,
        }
    }

    /// All that is announced may be listened to.
    fn accepted_subscription_filter(
        &self,
        filter: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(filter.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        changes::pass_on(context).await;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if rows::read(&request.uri).is_none() || watched.len() >= WATCHED_MAX {
            return Err(ErrorData::invalid_params("that cannot be watched", None));
        }
        watched.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = ROWS.prompts.iter().map(|row| row.prompt.clone()).collect();
        Ok(ListPromptsResult::with_all_items(prompts))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        rows::prompt(&request, &context)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = request.argument.value;
        let values = COMPLETIONS.iter().filter(|word| word.starts_with(&begun));
        let info = CompletionInfo::new(values.map(|word| (*word).to_owned()).collect());
        let info = info.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(info))
    }

    /// All that is logged here is for everybody who listens.
    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
