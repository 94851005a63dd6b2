//! The listener, its connections, and what ends them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{io, pin::pin};

use russh::keys::PrivateKey;
use russh::server::Config;
use russh::{Disconnect, MethodKind, MethodSet, SshId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use crate::Options;
use crate::connection::Connection;
use crate::flow::{Flow, Paced};
use crate::host_key::{self, HostKeyError};
use crate::limits::{
    ACCEPT_PAUSE, GOODBYE_MAX, KEEPALIVE_PAUSE, KEEPALIVES_MAX, LOGIN_GRACE, LOGINS_MAX,
    MESSAGES_MAX, PACKET_BYTES_MAX, READMIT_PAUSE, REFUSAL_PAUSE, STALL_MAX, STRANGERS_MAX,
    WINDOW_BYTES,
};
use crate::login::Login;
use crate::trail::Trail;
use crate::usage::Usage;
use access::keys::BadKeys;

/// A bound door.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    door: Arc<Options>,
    config: Arc<Config>,
    places: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    /// The places of each key that somebody is here with.
    keys: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// Of whose refused logins not all are recorded.
    refused: BadKeys,
}

/// Why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    #[error(transparent)]
    Listen(#[from] io::Error),
}

impl Server {
    pub async fn bind(options: Options, on: SocketAddr) -> Result<Self, OpenError> {
        let Options { host_key, makes_key, .. } = &options;
        let key =
            if *makes_key { host_key::read_or_make(host_key) } else { host_key::read(host_key) };
        let shared = Shared {
            config: Arc::new(config(key?)),
            places: Arc::new(Semaphore::new(options.limits.connections_max)),
            door: Arc::new(options),
            strangers: Arc::new(Semaphore::new(STRANGERS_MAX)),
            keys: Mutex::default(),
            refused: BadKeys::default(),
        };
        Ok(Self { listener: TcpListener::bind(on).await?, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        let address = self.listener.local_addr();
        address.map_or_else(|_| "ssh".to_owned(), |address| format!("ssh://{address}"))
    }

    /// Serves until `ending` says so, and then says goodbye to all.
    pub async fn run(self, mut ending: watch::Receiver<bool>) {
        let (mut connections, watched) = (JoinSet::new(), ending.clone());
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let (shared, ending) = (Arc::clone(&self.shared), watched.clone());
                        connections.spawn(async move { shared.attend(stream, peer, ending).await });
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
                () = ended(&mut ending) => break,
            }
        }
        drop(self.listener);
        while connections.join_next().await.is_some() {}
    }
}

async fn ended(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ends| *ends).await;
}

fn config(key: PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-Burrow_",
            env!("CARGO_PKG_VERSION")
        ))),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: REFUSAL_PAUSE,
        keys: vec![key],
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES_MAX,
        // Nobody reads these: input goes through `flow`.
        channel_buffer_size: 1,
        event_buffer_size: MESSAGES_MAX,
        max_auth_attempts: LOGINS_MAX,
        inactivity_timeout: Some(STALL_MAX),
        keepalive_interval: Some(KEEPALIVE_PAUSE),
        keepalive_max: KEEPALIVES_MAX,
        ..Config::default()
    }
}

impl Shared {
    /// Serves one connection to its end.
    async fn attend(&self, stream: TcpStream, peer: SocketAddr, mut ending: watch::Receiver<bool>) {
        // What finds no place is closed without a word: one of another protocol would not read it.
        let (Ok(_place), Ok(stranger)) = (self.places.try_acquire(), self.strangers.try_acquire())
        else {
            return;
        };
        let _ = stream.set_nodelay(true);
        let flow = Flow::default();
        let (known, mut login) = watch::channel(None);
        let usage = Usage::default();
        let handler =
            Connection::new(Arc::clone(&self.door), peer, flow.clone(), usage.clone(), known);
        let grace = sleep_until(Instant::now() + LOGIN_GRACE);
        let paced = Paced::new(stream, flow.clone());
        let starting = russh::server::run_stream(Arc::clone(&self.config), paced, handler);
        let Ok(Ok(session)) = timeout(LOGIN_GRACE, starting).await else {
            return self.note_refusal(peer);
        };
        let handle = session.handle();
        let (mut session, mut grace) = (pin!(session), pin!(grace));
        let mut stranger = Some(stranger);
        let mut own_place: Option<OwnedSemaphorePermit>;
        let mut looks = interval(READMIT_PAUSE);
        let why = loop {
            tokio::select! {
                ended = &mut session => {
                    if let Err(error) = ended {
                        tracing::debug!(target: "burrow::ssh", %peer, %error, "a connection ended");
                    }
                    if stranger.is_some() {
                        self.note_refusal(peer);
                    }
                    return;
                }
                Ok(()) = login.changed(), if stranger.is_some() => {
                    stranger = None;
                    own_place = login.borrow().as_ref().and_then(|login| self.place_of(login));
                    if own_place.is_none() {
                        break "this key has too many connections";
                    }
                }
                () = &mut grace, if stranger.is_some() => {
                    self.note_refusal(peer);
                    break "nobody has logged in for too long";
                }
                _ = looks.tick() => {
                    if !self.is_admitted(login.borrow().as_ref()) {
                        break "the key is not valid any more";
                    }
                    if stranger.is_none() && self.is_unused(&usage) {
                        break "nothing was done over this connection for too long";
                    }
                }
                () = ended(&mut ending) => break "the bridge ends",
            }
        };
        let goodbye = handle.disconnect(Disconnect::ByApplication, why.to_owned(), String::new());
        let _ = timeout(GOODBYE_MAX, async {
            let _ = goodbye.await;
            let _ = (&mut session).await;
        })
        .await;
        flow.cut();
        let _ = timeout(GOODBYE_MAX, &mut session).await;
    }

    fn is_admitted(&self, login: Option<&Login>) -> bool {
        login.is_none_or(|login| login.is_valid(&self.door.keyring))
    }

    fn is_unused(&self, usage: &Usage) -> bool {
        let unused_for = usage.unused_for();
        self.door.limits.idle_max.zip(unused_for).is_some_and(|(max, unused)| unused >= max)
    }

    fn place_of(&self, login: &Login) -> Option<OwnedSemaphorePermit> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, places| places.strong_count() > 0);
        let places = keys.get(&login.key()).and_then(Weak::upgrade).unwrap_or_else(|| {
            let places = Arc::new(Semaphore::new(self.door.limits.connections_per_key_max));
            keys.insert(login.key(), Arc::downgrade(&places));
            places
        });
        places.try_acquire_owned().ok()
    }

    fn note_refusal(&self, peer: SocketAddr) {
        if self.refused.count(peer.ip(), std::time::Instant::now()).is_ok() {
            Trail::refuse(&self.door, peer);
        }
    }
}
