//! Who may look at a port of a sandbox from outside, and under which name: its preview.
//!
//! ```text
//!  a key of the namespace ─┐
//!  a link of the port ─────┼─▶ the port, as `PORT-NAME.DOMAIN` or below `/p/`
//!  a public namespace ─────┘
//! ```
//!
//! The doors ask this; it carries no byte to a port.

mod limits;
mod link;
mod names;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

pub use limits::{LINK_TTL_DEFAULT, LINK_TTL_MAX, LINK_TTL_MIN};
pub use link::{Link, LinkError, LinkToken};
pub use names::{Base, Named};

use sandbox::{Name, SandboxId};

/// The field of a query with the token of a link.
pub const LINK_FIELD: &str = "burrow_link";
/// The word for names below `localhost`, at whatever port the server listens.
const LOCALHOST: &str = "localhost";
/// The sign for all namespaces.
const ALL: &str = "*";

/// The links of the sandboxes whose links were asked for.
type KnownLinks = HashMap<SandboxId, Arc<Vec<Link>>>;

/// See the module's description. Clones are the same.
#[derive(Clone, Default)]
pub struct Previews(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Where names are, as the operator has set it.
    base: Option<Base>,
    /// Where they are below `localhost`, once a server listens there.
    of_localhost: OnceLock<Base>,
    takes_localhost: bool,
    /// Where the first server listens.
    server: OnceLock<String>,
    public: Vec<String>,
    links: Mutex<KnownLinks>,
}

impl Previews {
    /// `url` is the origin below whose host ports have names, or `localhost`; `public` the namespaces that
    /// are for everybody, or `*`.
    pub fn new(url: Option<&str>, public: Vec<String>) -> Self {
        Self(Arc::new(Inner {
            base: url.and_then(Base::of_origin),
            takes_localhost: url == Some(LOCALHOST),
            public,
            ..Inner::default()
        }))
    }

    /// A server listens at this URL; `is_local` says whether only this machine reaches it. The first of
    /// either kind counts.
    pub fn listens_at(&self, url: &str, is_local: bool) {
        let _ = self.0.server.set(url.to_owned());
        if !is_local || !self.0.takes_localhost {
            return;
        }
        if let Some(base) = Base::of_origin(url) {
            let _ = self.0.of_localhost.set(base.on(LOCALHOST));
        }
    }

    /// Where ports have names of their own, if they have.
    pub fn base(&self) -> Option<&Base> {
        self.0.base.as_ref().or_else(|| self.0.of_localhost.get())
    }

    /// The URL of the server, once it listens.
    pub fn server(&self) -> Option<&str> {
        self.0.server.get().map(String::as_str)
    }

    pub fn is_public(&self, namespace: &Name) -> bool {
        self.0.public.iter().any(|public| public == ALL || public == namespace.as_str())
    }
}
