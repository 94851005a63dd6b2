//! What a request is about, by its path, its headers and its query: one place for the requests of all doors.
//!
//! ```text
//!  path, headers, query ─▶ subject: a name · an id · nothing ─▶ `whereabouts` ─▶ here: the handler
//!                                                                           └▶ there: `forward`
//! ```

use hyper::header::HeaderMap;

use super::caller::Caller;
use super::creation::namespace_of;
use super::daytona;
use super::e2b;
use super::mcp;
use super::msb;
use super::parameters::Parameters;
use super::route::percent_decode;
use super::whereabouts::{Subject, notebook};
use node::{Kind, Thing};
use sandbox::{Name, SandboxId, SandboxRef};

/// What the paths of operations of one sandbox begin with.
const ONE_SANDBOX: &str = "/v1/sandboxes/{namespace}/{name}";
/// What those of requests into a sandbox begin with that its own node judges.
const SEATS: &str = "/.e2b/";
const PREVIEWS: &str = "/.preview/{";
/// The path of calls of other nodes for the agent of a sandbox.
const AGENT: &str = "/.fleet/agent/{";
const A2A: &str = "/a2a/";
const ARTIFACTS: &str = "/v1/artifacts";
const MCP: &str = "/mcp";

/// A request, as far as it says what it is about.
pub struct Clues<'a> {
    /// Of the operation, as it is in the table.
    pub template: &'static str,
    pub parameters: &'a Parameters,
    pub headers: &'a HeaderMap,
    pub query: &'a str,
    /// Whose namespace counts where none is named, once that is known.
    pub caller: Option<&'a Caller>,
}

/// Whether only the node of its sandbox can say who may send a request: by a token of the sandbox, a link to a port, or
/// because its namespace is for everybody there.
pub fn is_judged_there(template: &str) -> bool {
    template.starts_with(SEATS) || template.starts_with(PREVIEWS)
}

impl Clues<'_> {
    /// What the request is about; `None` if it is about this node, or about many things.
    pub fn subject(&self) -> Option<Subject> {
        let path = self.template;
        if [ONE_SANDBOX, PREVIEWS, AGENT].iter().any(|begin| path.starts_with(begin)) {
            return Some(Subject::Sandbox(self.named("name")?));
        }
        if path.starts_with(SEATS) {
            return sandbox_of_id(e2b::sandbox_of(self.headers)?);
        }
        if path == MCP {
            return Some(Subject::Thing(Thing::new(Kind::Session, mcp::session_of(self.headers)?)));
        }
        if path == ARTIFACTS {
            return self.of_query();
        }
        if let Some(name) = self.parameters.get("sandbox").filter(|_| path.starts_with(A2A)) {
            let namespace = namespace_of(self.caller?, None);
            return Some(Subject::Sandbox(SandboxRef { namespace, name: name.parse().ok()? }));
        }
        if let Some(id) = self.parameters.get("sandbox") {
            return sandbox_of_id(id).or_else(|| self.by_name(id));
        }
        if let Some(id) = self.parameters.get("kernel") {
            return Some(Subject::Thing(Thing::new(Kind::Kernel, id)));
        }
        if path.starts_with(ARTIFACTS) {
            return Some(Subject::Thing(Thing::new(Kind::Artifact, self.parameters.get("id")?)));
        }
        let notebook = notebook(&self.named("notebook")?);
        // A run opens the notebook that it names.
        if path.ends_with("/run") {
            Some(Subject::Made(notebook))
        } else {
            Some(Subject::Thing(notebook))
        }
    }

    /// A name where an id may be, too: the clients of Daytona and of microsandbox have both.
    fn by_name(&self, text: &str) -> Option<Subject> {
        if ![daytona::PREFIX, msb::PREFIX].iter().any(|door| self.template.starts_with(door)) {
            return None;
        }
        let namespace = namespace_of(self.caller?, None);
        Some(Subject::Sandbox(SandboxRef { namespace, name: text.parse().ok()? }))
    }

    fn named(&self, field: &str) -> Option<SandboxRef> {
        let namespace = self.parameters.get("namespace")?.parse().ok()?;
        Some(SandboxRef { namespace, name: self.parameters.get(field)?.parse().ok()? })
    }

    /// What one sandbox or one notebook has left.
    fn of_query(&self) -> Option<Subject> {
        let field = |wanted: &str| {
            let mut fields = self.query.split('&').filter_map(|field| field.split_once('='));
            percent_decode(fields.find(|(name, _)| *name == wanted)?.1)
        };
        let own = self.caller.and_then(Caller::only_namespace).cloned();
        let namespace = field("namespace").and_then(|text| text.parse().ok()).or(own)?;
        let which = |name: Name| SandboxRef { namespace, name };
        if let Some(name) = field("sandbox") {
            return Some(Subject::Sandbox(which(name.parse().ok()?)));
        }
        Some(Subject::Thing(notebook(&which(field("notebook")?.parse().ok()?))))
    }
}

fn sandbox_of_id(id: &str) -> Option<Subject> {
    let id = id.parse::<SandboxId>().ok()?;
    Some(Subject::Thing(Thing::new(Kind::Sandbox, id.as_str())))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const ID: &str = "0123456789ab";

    fn subject(
        template: &'static str,
        parameters: &[(&'static str, &str)],
        query: &str,
    ) -> Option<Subject> {
        let parameters =
            parameters.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let headers =
            [("e2b-sandbox-id", ID), ("e2b-sandbox-port", "49983"), ("mcp-session-id", "s1")];
        let headers = headers
            .map(|(name, text)| (HeaderName::from_static(name), HeaderValue::from_static(text)));
        let headers = headers.into_iter().collect();
        let (parameters, caller) = (&Parameters(parameters), Some(&Caller::Local));
        Clues { template, parameters, headers: &headers, query, caller }.subject()
    }

    fn work() -> SandboxRef {
        SandboxRef { namespace: "team".parse().unwrap(), name: "work".parse().unwrap() }
    }

    #[test]
    fn requests_of_all_doors_say_what_they_are_about() {
        let thing = |kind, id| Some(Subject::Thing(Thing::new(kind, id)));
        let team = ("namespace", "team");
        let named = [team, ("name", "work")];
        let sandbox = Some(Subject::Sandbox(work()));
        assert_eq!(subject("/v1/sandboxes/{namespace}/{name}/exec", &named, ""), sandbox);
        assert_eq!(subject("/.preview/{namespace}/{name}/{port}", &named, ""), sandbox);
        assert_eq!(subject("/v1/artifacts", &[], "namespace=team&sandbox=work"), sandbox);
        assert_eq!(subject("/.e2b/envd/files", &[], ""), thing(Kind::Sandbox, ID));
        assert_eq!(
            subject("/sandboxes/{sandbox}", &[("sandbox", ID)], ""),
            thing(Kind::Sandbox, ID)
        );
        let kernel = [("kernel", "k1")];
        assert_eq!(
            subject("/api/kernels/{kernel}/channels", &kernel, ""),
            thing(Kind::Kernel, "k1")
        );
        assert_eq!(subject("/mcp", &[], ""), thing(Kind::Session, "s1"));
        assert_eq!(
            subject("/v1/artifacts/{id}/content", &[("id", "a1")], ""),
            thing(Kind::Artifact, "a1")
        );
        let named = SandboxRef { namespace: Name::default_namespace(), ..work() };
        let a2a = [("sandbox", "work")];
        assert_eq!(
            subject("/a2a/v1/sandboxes/{sandbox}/exec", &a2a, ""),
            Some(Subject::Sandbox(named))
        );
        let in_notebook = [team, ("notebook", "work")];
        let notebook = Thing::new(Kind::Notebook, "team/work");
        let run = subject("/v1/notebooks/{namespace}/{notebook}/run", &in_notebook, "");
        assert_eq!(run, Some(Subject::Made(notebook.clone())));
        let shown = subject("/v1/notebooks/{namespace}/{notebook}", &in_notebook, "");
        assert_eq!(shown, Some(Subject::Thing(notebook)));
    }

    #[test]
    fn daytonas_clients_name_a_sandbox_by_its_id_or_by_its_name() {
        let of = |template, text: &str| {
            let parameters = &Parameters(vec![("sandbox", text.to_owned())]);
            let (headers, caller) = (&HeaderMap::new(), Some(&Caller::Local));
            Clues { template, parameters, headers, query: "", caller }.subject()
        };
        let template = "/daytona/toolbox/{sandbox}/files";
        assert_eq!(of(template, ID), Some(Subject::Thing(Thing::new(Kind::Sandbox, ID))));
        let name = "work".parse().unwrap();
        let which = SandboxRef { namespace: Name::default_namespace(), name };
        assert_eq!(of(template, "work"), Some(Subject::Sandbox(which)));
        assert_eq!(of(template, "no name"), None);
        assert_eq!(of("/sandboxes/{sandbox}", "work"), None);
    }

    #[test]
    fn what_is_about_this_node_or_about_many_has_no_subject() {
        for template in ["/v1/sandboxes", "/v1/nodes", "/v1/artifacts", "/sandboxes", "/healthz"] {
            assert_eq!(subject(template, &[], ""), None, "{template}");
        }
        let named = [("namespace", "team"), ("name", "shot")];
        assert_eq!(subject("/v1/snapshots/{namespace}/{name}", &named, ""), None);
        assert_eq!(subject("/sandboxes/{sandbox}", &[("sandbox", "no id")], ""), None);
    }
}
