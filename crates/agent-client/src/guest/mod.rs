//! The typed client of one agent: one method per request, and no frame above it.
//!
//! `sandbox` and `cli` call it. It checks that what is asked fits the protocol, gives every answer
//! its type, and bounds what it joins from several answers. It never dials, and holds no state of
//! its own: that is the link's.
//!
//! Methods whose name ends in `_now` queue their request and return at once, so that several go out
//! in one write; the others wait for the answer.

mod adoption;
pub mod contexts;
mod error;
mod fit;
pub mod limits;
pub mod metrics;
mod output;
mod pending;
mod records;
mod requests;
mod streams;
mod watcher;
mod writer;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use protocol::AgentId;
use protocol::hello::AgentInfo;

pub use adoption::now_us;
pub use adoption::{Adoption, Frozen, Thawed};
pub use contexts::{Events, Queued, Ran, Run, RunCode};
pub use error::GuestError;
pub use output::{Heard, Output, Piece};
pub use pending::Pending;
pub use streams::{Awaited, FileTarget};
pub use watcher::Watcher;
pub use writer::{Upload, Writer, Written};

pub use crate::link::{Address, LinkError, Options, Timing};

use crate::link::Link;

/// An agent that is spoken to. Clones are the same; the link ends with the last of them and of the
/// streams that they opened.
#[derive(Clone, Debug)]
pub struct Guest {
    link: Link,
    heard: Heard,
    /// Who programs run as that name nobody; the agent's own user without.
    usual_user: Option<Arc<str>>,
    /// Where they begin that name no directory; the agent's own without.
    usual_directory: Option<Arc<str>>,
}

impl Guest {
    /// Dials an agent, and dials it again whenever the link is cut.
    pub async fn connect(address: Address, options: Options) -> Result<Self, LinkError> {
        Ok(Self::on(Link::connect(address, options).await?))
    }

    /// Speaks over a socket that is connected already. After a cut the agent is dialled at `then`;
    /// without an address it is lost.
    pub async fn over(
        stream: UnixStream,
        then: Option<Address>,
        options: Options,
    ) -> Result<Self, LinkError> {
        Ok(Self::on(Link::over(stream, then, options).await?))
    }

    fn on(link: Link) -> Self {
        Self { link, heard: Heard::default(), usual_user: None, usual_directory: None }
    }

    /// How much its programs and runs have said to this end.
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// The same agent, for callers whose programs run as this user where they name none.
    #[must_use]
    pub fn running_as(mut self, user: Option<&str>) -> Self {
        self.usual_user = user.map(Into::into);
        self
    }

    /// The same for the directory in which they begin.
    #[must_use]
    pub fn beginning_in(mut self, directory: Option<&str>) -> Self {
        self.usual_directory = directory.map(Into::into);
        self
    }

    /// What the agent said of itself when the link was last made.
    pub fn info(&self) -> AgentInfo {
        self.link.info()
    }

    pub fn agent_id(&self) -> AgentId {
        self.link.agent()
    }

    /// Resolves when the guest is gone for good, and says why.
    pub fn lost(&self) -> impl Future<Output = LinkError> + Send + use<> {
        self.link.lost()
    }

    /// Says that the agent's machine is gone, so that nothing waits for it to come back. What has
    /// arrived from it is still handed out.
    pub fn forsake(&self) {
        self.link.forsake();
    }

    /// Says that the agent's machine stands still, and is neither lost nor to be dialled.
    pub fn hold(&self) {
        self.link.hold();
    }

    /// Says that it goes on; see [`Link::go_on`].
    pub fn go_on(&self, anew: bool) {
        self.link.go_on(anew);
    }

    /// Says goodbye and closes the link, for all clones. Streams that were not finished are given up.
    pub async fn close(self) {
        self.link.close().await;
    }
}

#[cfg(test)]
mod tests;
