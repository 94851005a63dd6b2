//! The transport: one connection to NATS, and the store's operations on it. The driver calls it; it decides nothing.
//!
//! A write is one publish with the expected last sequence of its subject, which the server checks when it stores it.
//! Reads go to the leader of a stream. A scan writes a barrier first and reads until it has seen it, so that it
//! shows everything that was stored before it began, whichever server answers.

mod documents;
mod forms;
mod logs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self, kv};
use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::event::{Entry, Outcome, Reply, Request, Scanned, Scope};
use crate::ids::{Name, NodeId, Revision};
use crate::limits::{ANSWER_MS, MARKER_S, RECORD_BYTES_MAX};
use crate::records::{Key, NameRecord, NodeRecord, Value};
pub use documents::{Change, Document, Documents, Shelf};
pub use logs::{Keeping, Records};

use forms::{Bucket, bucket_of, is_marker, key_of, parse_value, subject_of, write_value};

/// Where the control plane is, and who we are to it.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// `nats://` or `tls://` addresses, with commas between them.
    pub servers: String,
    /// A credentials file, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// The certificate of who has signed the servers', if the system does not trust them.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, where the servers ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How many servers keep each record. 3 survives the loss of one.
    pub replicas: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot read the NATS credentials file {path}: {source}")]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error("invalid NATS address {address:?}: {source}")]
    Address { address: String, source: std::io::Error },
    #[error("cannot reach NATS at {servers}: {source}")]
    Connect { servers: String, source: async_nats::ConnectError },
    #[error(
        "cannot open the bucket {bucket} of NATS JetStream, which must be 2.11 or newer: {why}"
    )]
    Bucket { bucket: &'static str, why: String },
    #[error("cannot open the stream {stream} of NATS JetStream for durable output: {why}")]
    Logs { stream: String, why: String },
    #[error("cannot listen on {subject}: {source}")]
    Subscribe { subject: String, source: async_nats::client::SubscribeError },
}

/// What goes wrong while the link stands; the answer is then not known.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("JetStream did not answer: {0}")]
    Unavailable(String),
    #[error("the record at {subject} is not one of ours: {source}")]
    Form { subject: String, source: serde_json::Error },
    #[error("the record at {subject} is not one of a log")]
    Record { subject: String },
}

/// One connection, for as many users as it likes.
#[derive(Clone)]
pub struct Link {
    client: Client,
    jetstream: jetstream::Context,
    // Shared, because each has kilobytes that every future with a link would carry.
    nodes: Arc<kv::Store>,
    names: Arc<kv::Store>,
    quotas: Arc<kv::Store>,
    templates: Arc<kv::Store>,
}

fn unavailable(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

impl Link {
    /// Connects and opens the buckets. It goes on trying to reach servers that are away later, not now.
    pub async fn connect(place: &Place, name: &str) -> Result<Self, LinkError> {
        let client = connect(place, name).await?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(Duration::from_millis(ANSWER_MS));
        let open = |bucket: Bucket| Box::pin(open(&jetstream, bucket, place.replicas.max(1)));
        let nodes = Arc::new(open(Bucket::Nodes).await?);
        let names = Arc::new(open(Bucket::Names).await?);
        let quotas = Arc::new(open(Bucket::Quotas).await?);
        let templates = Arc::new(open(Bucket::Templates).await?);
        Ok(Self { client, jetstream, nodes, names, quotas, templates })
    }

    fn bucket(&self, bucket: Bucket) -> &kv::Store {
        match bucket {
            Bucket::Nodes => &self.nodes,
            Bucket::Names => &self.names,
            Bucket::Quotas => &self.quotas,
            Bucket::Templates => &self.templates,
        }
    }

    /// Whether the connection stands.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    pub async fn write(
        &self,
        key: &Key,
        expected: Revision,
        value: Option<&Value>,
        ttl_s: Option<u64>,
    ) -> Outcome {
        let mut message = PublishMessage::build().expected_last_subject_sequence(expected.0);
        match value {
            Some(value) => message = message.payload(write_value(value)),
            // The marker that is left says that there was something, and goes by itself.
            None => {
                message = message.header("KV-Operation", "DEL").ttl(Duration::from_secs(MARKER_S));
            }
        }
        if let Some(ttl_s) = ttl_s {
            message = message.ttl(Duration::from_secs(ttl_s));
        }
        self.publish(subject_of(key), message).await
    }

    async fn publish(&self, subject: String, message: PublishMessage) -> Outcome {
        let sent = self.jetstream.send_publish(subject, message).await;
        let stored = match sent {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(stored) => Outcome::Stored(Revision(stored.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Outcome::Conflict,
            Err(error) => {
                tracing::debug!(%error, "a write got no answer");
                Outcome::Unavailable
            }
        }
    }

    pub async fn read(&self, key: &Key) -> Result<Entry, StoreError> {
        let subject = subject_of(key);
        let stream = &self.bucket(bucket_of(key)).stream;
        let message = match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                return Ok(Entry::default());
            }
            Err(error) => return Err(unavailable(error)),
        };
        let value = if is_marker(&message.headers) {
            None
        } else {
            let value = parse_value(key, &message.payload);
            Some(value.map_err(|source| StoreError::Form { subject, source })?)
        };
        Ok(Entry { revision: Revision(message.sequence), value })
    }

    /// Everything in the scope that was stored before this was called.
    pub async fn scan(&self, scope: &Scope, who: &NodeId) -> Result<Scanned, StoreError> {
        let barrier = format!("{}barrier.scan.{who}", Bucket::Names.prefix());
        let message = PublishMessage::build().payload(Bytes::from_static(b"{}"));
        let Outcome::Stored(last) = self.publish(barrier.clone(), message).await else {
            return Err(StoreError::Unavailable("the barrier of a scan was not stored".into()));
        };
        let filter = match scope {
            Scope::Node(_) => format!("{}*.*", Bucket::Names.prefix()),
            Scope::Namespace(namespace) => format!("{}{namespace}.*", Bucket::Names.prefix()),
        };
        let mut messages = self.last_of(&self.names, vec![filter, barrier]).await?;
        // A name that is written while the scan reads comes twice: the later one counts.
        let mut found = BTreeMap::new();
        let reading = async {
            while let Some(message) = messages.next().await {
                let message = message.map_err(unavailable)?;
                let sequence = message.info().map_err(unavailable)?.stream_sequence;
                if let Some(key @ Key::Name(_)) = key_of(&message.subject) {
                    let is_gone = message.headers.as_ref().is_some_and(is_marker);
                    let payload = (!is_gone).then_some(&message.payload[..]);
                    keep(&mut found, scope, key, Revision(sequence), payload)?;
                }
                if sequence >= last.0 {
                    return Ok(());
                }
            }
            Err(StoreError::Unavailable("a scan ended before its end".into()))
        };
        let limit = Duration::from_millis(10 * ANSWER_MS);
        tokio::time::timeout(limit, reading).await.map_err(unavailable)??;
        Ok(found.into_iter().map(|(name, (revision, record))| (name, revision, record)).collect())
    }

    /// The last message of each subject, then what comes.
    async fn last_of(
        &self,
        store: &kv::Store,
        filters: Vec<String>,
    ) -> Result<Ordered, StoreError> {
        let config = OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subjects: filters,
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..OrderedConfig::default()
        };
        let consumer = store.stream.create_consumer(config).await.map_err(unavailable)?;
        consumer.messages().await.map_err(unavailable)
    }

    /// How nodes describe themselves: all now, and every change.
    pub async fn watch_nodes(&self) -> Result<Descriptions, StoreError> {
        let filter = format!("{}about.*", Bucket::Nodes.prefix());
        Ok(Descriptions(self.last_of(&self.nodes, vec![filter]).await?))
    }

    /// When a key was written last.
    pub async fn written_at_ms(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        let stream = &self.bucket(bucket_of(key)).stream;
        match stream.get_last_raw_message_by_subject(&subject_of(key)).await {
            Ok(message) => Ok(u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).ok()),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    pub async fn ask(&self, to: &NodeId, request: &Request) -> Option<Reply> {
        let payload = serde_json::to_vec(request).expect("a request is JSON");
        let asking = self.client.request(ask_subject(to), payload.into());
        let answer =
            tokio::time::timeout(Duration::from_millis(ANSWER_MS), asking).await.ok()?.ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }

    /// The requests to this node.
    pub async fn listen(&self, id: &NodeId) -> Result<Requests, LinkError> {
        let subject = ask_subject(id);
        let subscriber = self.client.subscribe(subject.clone()).await;
        let subscriber = subscriber.map_err(|source| LinkError::Subscribe { subject, source })?;
        Ok(Requests(subscriber))
    }

    pub async fn reply(&self, to: ReplyTo, reply: &Reply) {
        let payload = serde_json::to_vec(reply).expect("a reply is JSON");
        // Who asked counts a lost reply as none.
        if let Err(error) = self.client.publish(to.0, payload.into()).await {
            tracing::debug!(%error, "a reply was not sent");
        }
    }
}

/// How nodes describe themselves.
pub struct Descriptions(Ordered);

impl Descriptions {
    /// `None`: the watch has ended; begin another.
    pub async fn next(&mut self) -> Option<(NodeId, Option<Arc<NodeRecord>>)> {
        loop {
            let message = self.0.next().await?.ok()?;
            let Some(Key::Node(id)) = key_of(&message.subject) else { continue };
            if message.headers.as_ref().is_some_and(is_marker) {
                return Some((id, None));
            }
            if let Ok(Value::Node(record)) = parse_value(&Key::Node(id.clone()), &message.payload) {
                return Some((id, Some(record)));
            }
            tracing::warn!(node = %id, "its description is not one of ours");
        }
    }
}

/// What other members ask.
pub struct Requests(Subscriber);

/// Where a reply goes.
pub struct ReplyTo(async_nats::Subject);

impl Requests {
    /// `None`: the connection has been closed for good.
    pub async fn next(&mut self) -> Option<(Request, ReplyTo)> {
        loop {
            let message = self.0.next().await?;
            let Some(reply) = message.reply else { continue };
            let is_small = message.payload.len() <= RECORD_BYTES_MAX;
            match serde_json::from_slice(&message.payload) {
                Ok(request) if is_small => return Some((request, ReplyTo(reply))),
                _ => tracing::warn!(bytes = message.payload.len(), "a request is not one of ours"),
            }
        }
    }
}

/// Takes one message of a scan in; without a payload the name is gone.
fn keep(
    found: &mut BTreeMap<Name, (Revision, NameRecord)>,
    scope: &Scope,
    key: Key,
    revision: Revision,
    payload: Option<&[u8]>,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Form { subject: subject_of(&key), source };
    let value = payload.map(|payload| parse_value(&key, payload)).transpose().map_err(failed)?;
    let Key::Name(name) = key else { return Ok(()) };
    match value {
        Some(Value::Name(record)) if is_in(scope, &record) => {
            found.insert(name, (revision, record));
        }
        _ => {
            found.remove(&name);
        }
    }
    Ok(())
}

fn is_in(scope: &Scope, record: &NameRecord) -> bool {
    match scope {
        Scope::Node(node) => record.node == *node || record.waits(),
        Scope::Namespace(_) => true,
    }
}

fn ask_subject(id: &NodeId) -> String {
    format!("burrow.node.{id}.ask")
}

async fn connect(place: &Place, name: &str) -> Result<Client, LinkError> {
    let mut options = ConnectOptions::new()
        .name(format!("burrow {name}"))
        .connection_timeout(Duration::from_millis(ANSWER_MS))
        .request_timeout(Some(Duration::from_millis(ANSWER_MS)))
        .ping_interval(Duration::from_secs(5));
    if let Some(path) = &place.credentials {
        options = options
            .credentials_file(path)
            .await
            .map_err(|source| LinkError::Credentials { path: path.clone(), source })?;
    }
    if let Some(ca) = &place.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &place.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let parse = |address: &str| {
        address
            .trim()
            .parse::<async_nats::ServerAddr>()
            .map_err(|source| LinkError::Address { address: address.to_owned(), source })
    };
    let servers: Vec<_> = place.servers.split(',').map(parse).collect::<Result<_, _>>()?;
    // The client takes them from no address by itself.
    let named = servers.iter().find_map(|server| Some((server.username()?, server.password()?)));
    if let Some((user, password)) = named {
        options = options.user_and_password(user.to_owned(), password.to_owned());
    }
    let shown: Vec<_> = servers.iter().map(|server| server.host().to_owned()).collect();
    let connected = options.connect(servers).await;
    connected.map_err(|source| LinkError::Connect { servers: shown.join(", "), source })
}

async fn open(
    jetstream: &jetstream::Context,
    bucket: Bucket,
    replicas: usize,
) -> Result<kv::Store, LinkError> {
    let failed = |why: String| LinkError::Bucket { bucket: bucket.name(), why };
    let config = kv::Config {
        bucket: bucket.name().to_owned(),
        history: 1,
        num_replicas: replicas,
        limit_markers: Some(Duration::from_secs(MARKER_S)),
        max_value_size: RECORD_BYTES_MAX as i32,
        ..kv::Config::default()
    };
    // Two bridges that begin at once both create it: the slower one finds it.
    match jetstream.create_key_value(config).await {
        Ok(store) => Ok(store),
        Err(created) => {
            let found = jetstream.get_key_value(bucket.name()).await;
            found.map_err(|_| failed(created.to_string()))
        }
    }
}
