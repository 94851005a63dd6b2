//! All that a member can see and all that it can do. The transport turns these into NATS and HTTP; the
//! simulation turns them into a queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Fence, Incarnation, Name, NodeId, Revision, Session};
use crate::lease::Leash;
use crate::placement::{Offer, Wish};
use crate::quota::QuotaError;
use crate::records::{Key, NameRecord, NodeRecord, Readiness, Room, Value};

/// Joins an action with the event that answers it.
pub type Ticket = u64;

/// What the store has under a key: the revision of its last write, and the value unless that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub revision: Revision,
    pub value: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stored(Revision),
    /// The key has another revision than the one expected.
    Conflict,
    /// No answer. It may have been stored, or be stored later.
    Unavailable,
}

/// Which names a scan reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of a node, and those of all nodes whose lost sandbox waits to be made again.
    Node(NodeId),
    Namespace(Arc<str>),
}

pub type Scanned = Vec<(Name, Revision, NameRecord)>;

#[derive(Clone, Debug)]
pub enum Event {
    /// Some time has passed; a few a second.
    Tick,
    Wrote {
        ticket: Ticket,
        outcome: Outcome,
    },
    /// `None`: no answer.
    Read {
        ticket: Ticket,
        entry: Option<Entry>,
    },
    /// What the store had at one moment after the scan was asked for. `None`: no answer.
    Scanned {
        ticket: Ticket,
        records: Option<Scanned>,
    },
    /// The description of a node has changed, or was removed.
    NodeSeen {
        id: NodeId,
        record: Option<Arc<NodeRecord>>,
    },
    /// Another member asks; it is answered with [`Action::Reply`].
    Asked {
        ticket: Ticket,
        request: Request,
    },
    /// `None`: no answer. The request may have been carried out.
    Answered {
        ticket: Ticket,
        reply: Option<Reply>,
    },
    /// A client of this member calls; it is answered with [`Action::Answer`].
    Called {
        call: Ticket,
        what: Call,
    },
    MachineStarted {
        incarnation: Incarnation,
        /// Why it did not start.
        failure: Option<String>,
    },
    MachineEnded {
        incarnation: Incarnation,
    },
    /// Somebody on this host has removed the sandbox, and its name becomes free.
    MachineRemoved {
        incarnation: Incarnation,
    },
}

#[derive(Clone, Debug)]
pub enum Action {
    /// Compare-and-swap. `value: None` removes the key.
    Write {
        ticket: Ticket,
        key: Key,
        expected: Revision,
        value: Option<Value>,
        ttl_s: Option<u64>,
    },
    Read {
        ticket: Ticket,
        key: Key,
    },
    Scan {
        ticket: Ticket,
        scope: Scope,
    },
    Ask {
        ticket: Ticket,
        to: NodeId,
        request: Request,
    },
    Reply {
        ticket: Ticket,
        reply: Reply,
    },
    Answer {
        call: Ticket,
        answer: Answer,
    },
    /// Machines pause and end at these times, whatever becomes of the bridge. Machines that were paused
    /// run again.
    Leash(Leash),
    /// The lease is over: every machine ends now.
    EndAll,
    Start {
        incarnation: Incarnation,
        name: Name,
        spec: Arc<str>,
    },
    End {
        incarnation: Incarnation,
    },
    /// Says whether this host has a thing that no name of the store is about; the answer goes to who has asked.
    Look {
        ticket: Ticket,
        thing: Arc<str>,
    },
    /// For the operator.
    Note(Note),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Joined {
        session: Session,
    },
    /// Another installation is alive under this node's name.
    Twin,
    Over,
    /// An operator has changed whether the node takes sandboxes.
    Marked {
        readiness: Readiness,
    },
    Buried {
        node: NodeId,
    },
    Lost {
        name: Name,
        incarnation: Incarnation,
        node: NodeId,
    },
    /// Nothing is left of a sandbox that was removed here, nor of its record.
    Freed {
        incarnation: Incarnation,
    },
    /// This node is the one to make a sandbox again that was lost.
    Waits {
        name: Name,
        incarnation: Incarnation,
    },
}

/// Between members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    Offer {
        wish: Wish,
    },
    Reserve {
        incarnation: Incarnation,
        session: Session,
        needs: Room,
    },
    /// The create did not get its name: the room that was kept for it is free. Nobody waits for the reply.
    GiveRoom {
        incarnation: Incarnation,
    },
    Start {
        incarnation: Incarnation,
        session: Session,
        fence: Fence,
        #[serde(with = "crate::ids::shared_text")]
        namespace: Arc<str>,
        #[serde(with = "crate::ids::shared_text")]
        name: Arc<str>,
        #[serde(with = "crate::ids::shared_text")]
        spec: Arc<str>,
        /// Whether this is the create that has reserved and claimed; another only asks what has become of it.
        own: bool,
    },
    Remove {
        incarnation: Incarnation,
        #[serde(with = "crate::ids::shared_text")]
        namespace: Arc<str>,
        #[serde(with = "crate::ids::shared_text")]
        name: Arc<str>,
    },
    Mark {
        readiness: Readiness,
    },
    /// Whether the node has a thing that is known by an id alone. What things there are is the hosts' business.
    Look {
        #[serde(with = "crate::ids::shared_text")]
        thing: Arc<str>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    Offered {
        session: Session,
        offer: Offer,
    },
    Reserved,
    Started {
        fence: Fence,
    },
    /// It is on its way up or down: nothing can be said yet.
    Pending,
    Removed,
    /// No, and it will not be done later either.
    Refused,
    /// The same of a start, with what the owner's machines say.
    Failed {
        why: String,
    },
    Marked,
    /// The node has the thing, which belongs to the sandbox of this life if to any.
    Has {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incarnation: Option<Incarnation>,
    },
    HasNot,
    /// The node can't say: it has no lease at the moment.
    Away,
}

/// By a client.
#[derive(Clone, Debug)]
pub enum Call {
    Create(Box<CreateCall>),
    Find {
        name: Name,
    },
    Remove {
        name: Name,
    },
    /// The sandbox is gone from this host, in order: its name becomes free. Answered when it is, or with a refusal if
    /// that has to wait; [`Note::Freed`] follows then.
    Release {
        incarnation: Incarnation,
    },
    /// The same, but it is lost: its name stays, and it is made again if that was asked for. Answered with
    /// [`Answer::Removed`] when this node will never start it.
    Lose {
        incarnation: Incarnation,
    },
    /// Images have come to the node, or gone. Answered with [`Answer::Marked`].
    Describe {
        images: BTreeSet<String>,
    },
    /// The nodes that have described themselves.
    Nodes,
    /// Whether a node takes sandboxes.
    Mark {
        node: NodeId,
        readiness: Readiness,
    },
}

#[derive(Clone, Debug)]
pub struct CreateCall {
    pub name: Name,
    /// The idempotency key: a create that is repeated with it is the same create.
    pub request: Arc<str>,
    pub wish: Wish,
    /// What the owner makes the sandbox from.
    pub spec: Arc<str>,
    /// How many sandboxes the namespace may have in the fleet.
    pub limit: Option<u32>,
    /// The sandbox is made again when it is lost.
    pub returns: bool,
    /// Only if the name is that of this life, which was lost.
    pub in_place_of: Option<Incarnation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Created {
        incarnation: Incarnation,
        node: NodeId,
        fence: Fence,
    },
    Found {
        incarnation: Incarnation,
        node: NodeId,
        fence: Fence,
    },
    /// Its node is gone, or no longer has it.
    Lost {
        incarnation: Incarnation,
        node: NodeId,
        /// It will be made again.
        returns: bool,
        /// The idempotency key of its create.
        request: Arc<str>,
    },
    Absent,
    Removed,
    Nodes(Vec<(NodeId, Arc<NodeRecord>)>),
    Marked,
    /// The owner could not start the sandbox, and nothing is left of it.
    Failed {
        why: String,
    },
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the name is taken")]
    Taken,
    #[error(transparent)]
    Quota(#[from] QuotaError),
    #[error("no ready node has room for the sandbox")]
    NoRoom,
    #[error("the fleet's control plane is away; nothing was created")]
    Away,
    #[error(
        "there was no answer, and it may have been done: repeat the call with the same idempotency key"
    )]
    Unknown,
    #[error("a create with this idempotency key is under way: repeat the call")]
    UnderWay,
    #[error("this bridge has too many creates under way")]
    Busy,
    #[error("the node could not start the sandbox")]
    StartFailed,
}
