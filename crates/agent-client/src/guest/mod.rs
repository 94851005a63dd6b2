//! The typed client of one agent: one method per request, and no frame above it.
//!
//! `sandbox` and `cli` call it. It checks that requests fit the protocol, gives every answer its
//! type, and limits what it joins from several answers. It never dials, and holds no state of its
//! own: the link does.
//!
//! Methods whose name ends in `_now` queue their request and return at once, so that several go out
//! in one write; the others wait for the answer.

mod adoption;
pub mod contexts;
mod error;
mod fit;
mod horizon;
pub mod limits;
pub mod metrics;
mod observer;
mod output;
mod pending;
mod provenance;
mod records;
mod requests;
mod rules;
mod streams;
pub(crate) mod trace;
mod typed;
mod watcher;
mod writer;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use otel::Scope;
use protocol::AgentId;
use protocol::hello::AgentInfo;

pub use adoption::now_us;
pub use adoption::{Adoption, Frozen, Thawed};
pub use contexts::{Events, Queued, Ran, Run, RunCode};
pub use error::GuestError;
pub use horizon::Horizons;
pub use observer::{Observed, Observer};
pub use output::{Output, OutputCounter, Piece};
pub use pending::Pending;
pub(crate) use provenance::ProgramAccount;
pub use provenance::{
    BLOCK_BYTES, BegunInput, Content, DisplayedForm, FilePlace, ProgramEnd, Provenance,
    ProvenanceKeeper, ReceivedFile, RunRecord, SentInput,
};
pub(crate) use rules::is_recorded;
pub use rules::{OutputRule, OutputRules};
pub use streams::{Awaited, FileTarget};
pub use trace::{cause_name, run_end_name};
pub use typed::{InputRule, InputRules};
pub use watcher::Watcher;
pub use writer::{Upload, Writer, Written};

pub use crate::link::{Address, LinkError, Options, Timing};

use crate::link::{Batch, Link};

/// An agent that is spoken to. Clones are the same; the link ends with the last of them and of the
/// streams that they opened.
#[derive(Clone, Debug)]
pub struct Guest {
    link: Link,
    output_counter: OutputCounter,
    observer: Observer,
    output_rules: OutputRules,
    input_rules: InputRules,
    provenance: ProvenanceKeeper,
    /// The default user of programs; the agent's own user if absent.
    usual_user: Option<Arc<str>>,
    /// The default working directory; the agent's own if absent.
    usual_directory: Option<Arc<str>>,
    /// The span of which what is started is a part.
    scope: Option<Scope>,
}

impl Guest {
    /// Dials an agent, and dials it again whenever the link is cut.
    pub async fn connect(address: Address, options: Options) -> Result<Self, LinkError> {
        Ok(Self::on(Link::connect(address, options).await?))
    }

    /// Uses a connected socket. After a cut the agent is dialled at `then`; without an address it
    /// is lost.
    pub async fn over(
        stream: UnixStream,
        then: Option<Address>,
        options: Options,
    ) -> Result<Self, LinkError> {
        Ok(Self::on(Link::over(stream, then, options).await?))
    }

    fn on(link: Link) -> Self {
        Self {
            link,
            output_counter: OutputCounter::default(),
            observer: Observer::default(),
            output_rules: OutputRules::default(),
            input_rules: InputRules::default(),
            provenance: ProvenanceKeeper::default(),
            usual_user: None,
            usual_directory: None,
            scope: None,
        }
    }

    /// How much output of its programs and runs this end has received.
    pub fn output_counter(&self) -> &OutputCounter {
        &self.output_counter
    }

    /// Who learns of its programs and runs.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Who records what is typed into its sessions.
    pub fn input_rules(&self) -> &InputRules {
        &self.input_rules
    }

    /// Who keeps what this client has put in, sent and run.
    pub fn provenance(&self) -> &ProvenanceKeeper {
        &self.provenance
    }

    /// The same agent, with this user as the default.
    #[must_use]
    pub fn running_as(mut self, user: Option<&str>) -> Self {
        self.usual_user = user.map(Into::into);
        self
    }

    /// The same agent, with this working directory as the default.
    #[must_use]
    pub fn beginning_in(mut self, directory: Option<&str>) -> Self {
        self.usual_directory = directory.map(Into::into);
        self
    }

    /// The same agent, whose programs and runs are parts of a trace.
    #[must_use]
    pub fn within(mut self, scope: Option<Scope>) -> Self {
        self.scope = scope;
        self
    }

    /// The agent's description of itself when the link was last made.
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

    /// The agent's machine is gone, so nothing waits for it to come back. What has arrived from it
    /// can still be read.
    pub fn machine_ended(&self) {
        self.link.machine_ended();
    }

    /// The agent's machine is paused, and is neither lost nor to be dialled.
    pub fn machine_paused(&self) {
        self.link.machine_paused();
    }

    /// It resumes; see [`Link::machine_resumed`].
    pub fn machine_resumed(&self, reconnects: bool) {
        self.link.machine_resumed(reconnects);
    }

    /// Requests that are made while the result lives go out together. It is not to be held across an `await`.
    pub(crate) fn batch(&self) -> Batch<'_> {
        self.link.batch()
    }

    /// Its link moves to the calling thread, which will make the next requests.
    pub fn move_here(&self) {
        self.link.move_here();
    }

    /// Says goodbye and closes the link, for all clones. Streams that were not finished are given up.
    pub async fn close(self) {
        self.link.close().await;
    }
}

#[cfg(test)]
mod tests;
