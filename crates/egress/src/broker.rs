//! Connections that secrets are injected into. The broker ends the guest's TLS and opens its own TLS
//! connection to the host, whose certificate it checks like any other client on this machine.
//!
//! If the host cannot be reached, the guest's connection is not reset. Its first request gets an answer
//! within its own TLS, so a program and its logs show the reason.
//!
//! A break on one side becomes a break on the other. If a host ends without TLS's closing alert, the guest
//! sees the same. If a guest does, its requests still count.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::server::TlsStream;

use super::authority::Authority;
use super::carry::{CarryError, LINGER, Plan, Stream, Tally, carry};
use super::connection::answer_with;
use super::host::Host;
use super::http::{Requests, agrees};
use super::inject::Injections;
use super::limits::{
    BETWEEN_BYTES, FILLED_AT_ONCE_BYTES, FIRST_BYTES_DEADLINE, READ_BYTES, TLS_DEADLINE,
};
use super::meter::Meter;
use super::unreachable::UnreachableHost;
use super::{EgressError, Settings};
use host::secret::wipe;
use host::trust;

/// Secrets are sent to this port only.
pub const TLS_PORT: u16 = 443;

const WITH_GUEST: &str = "the sandbox";
const WITH_HOST: &str = "the host";

/// What the broker's connections of one sandbox share.
pub struct Broker {
    pub secrets: Arc<Injections>,
    pub authority: Authority,
    pub connector: TlsConnector,
}

impl Broker {
    /// Creates the authority of the sandbox, which its programs are to trust.
    pub async fn open(
        secrets: Injections,
        settings: &Settings,
        directory: Option<&Path>,
    ) -> Result<Self, EgressError> {
        let authority = Authority::open(directory, &secrets.hosts()).await?;
        let ca = settings.ca.clone();
        let reading = tokio::task::spawn_blocking(move || trust::connector(&ca, None));
        let connector = reading.await.map_err(|_| EgressError::Ending)??;
        Ok(Self { secrets: Arc::new(secrets), authority, connector })
    }

    /// Carries a connection to its end. Tells of secrets that have gone out.
    #[allow(clippy::too_many_arguments)] // as `carry`, and what differs
    pub async fn carry(
        &self,
        host: &Host,
        stream: Stream,
        connection: TcpStream,
        plan: Plan,
        meter: &Meter,
        idle: Duration,
        tally: &Tally,
        used: impl Fn(Vec<String>),
    ) -> Result<(), CarryError> {
        let (near, far) = tokio::io::duplex(BETWEEN_BYTES);
        let outer = carry(stream, near, plan, meter, idle, tally);
        let inner = self.speak(host, far, connection, used);
        tokio::try_join!(outer, inner).map(drop)
    }

    /// Answers a guest that its host is not reached.
    pub async fn decline(
        &self,
        unreachable: &UnreachableHost<'_>,
        stream: Stream,
        plan: Plan,
        idle: Duration,
    ) -> Result<(), CarryError> {
        let (near, far) = tokio::io::duplex(BETWEEN_BYTES);
        let tally = Tally::default();
        // None of it leaves this host, and a used-up traffic limit must not hide the reason.
        let meter = Meter::new(None, None);
        let outer = carry(stream, near, plan, &meter, idle, &tally);
        let inner = self.answer_for(unreachable, far);
        tokio::try_join!(outer, inner).map(drop)
    }

    async fn answer_for(
        &self,
        unreachable: &UnreachableHost<'_>,
        guest: DuplexStream,
    ) -> Result<(), CarryError> {
        let (mut reader, mut writer) =
            tokio::io::split(self.accept(unreachable.host, guest).await?);
        let requests = Requests::new(unreachable.host.clone(), TLS_PORT);
        let word = match timeout(FIRST_BYTES_DEADLINE, first(&mut reader, requests)).await {
            Ok(Ok(())) if unreachable.by_rule => answer_with(403, "Forbidden", unreachable),
            Ok(Ok(())) => answer_with(502, "Bad Gateway", unreachable),
            Ok(Err(CarryError::Request(wrong))) => answer_with(403, "Forbidden", &wrong),
            Ok(Err(broken)) => return Err(broken),
            // A client that sends no request gets no answer.
            Err(_) => return Ok(()),
        };
        // It does not matter whether the guest has read it.
        let _ = timeout(LINGER, part(&mut reader, &mut writer, &word)).await;
        Ok(())
    }

    async fn accept(
        &self,
        host: &Host,
        guest: DuplexStream,
    ) -> Result<TlsStream<DuplexStream>, CarryError> {
        let with_guest = |source| CarryError::Tls { with: WITH_GUEST, source };
        let acceptor = self.authority.server(host);
        let acceptor = acceptor.map_err(|error| with_guest(io::Error::other(error)))?;
        within(acceptor.accept(guest)).await.map_err(with_guest)
    }

    async fn speak(
        &self,
        host: &Host,
        guest: DuplexStream,
        server: TcpStream,
        used: impl Fn(Vec<String>),
    ) -> Result<(), CarryError> {
        let with_host = |source| CarryError::Tls { with: WITH_HOST, source };
        let name = ServerName::try_from(host.as_str().to_owned());
        let name = name.map_err(|error| with_host(io::Error::other(error)))?;
        // Connects to the host first: the guest's connection is complete only when the host's is.
        let server = match within(self.connector.connect(name, server)).await {
            Ok(server) => server,
            Err(source) => {
                // The host's failure is the one to report, even if answering the guest fails.
                let _ = self.answer_for(&UnreachableHost::by_tls(host, &source), guest).await;
                return Err(with_host(source));
            }
        };
        let guest = self.accept(host, guest).await?;
        let (mut guest_reader, mut guest_writer) = tokio::io::split(guest);
        let (server_reader, server_writer) = tokio::io::split(server);
        let secrets = Arc::clone(&self.secrets);
        let requests = Requests::with_secrets(host.clone(), TLS_PORT, secrets);
        let (agreed, agreement) = oneshot::channel();
        let ended = {
            let mut answers = std::pin::pin!(answer(server_reader, &mut guest_writer, agreed));
            tokio::select! {
                // A host that has sent its whole answer needs no further requests.
                answered = &mut answers => answered,
                outcome = ask(&mut guest_reader, server_writer, requests, agreement, used) => match outcome {
                    Ok(()) => answers.await,
                    Err(error) => Err(error),
                }
            }
        };
        match ended {
            Ok(Close::Unsaid) => Ok(()),
            Ok(Close::InOrder) => {
                // The guest may still be sending, and not know yet that nobody reads it.
                read_out(&mut guest_reader).await;
                Ok(())
            }
            Err(CarryError::FirstRequest(wrong)) => {
                let word = answer_with(403, "Forbidden", &wrong);
                let parting = part(&mut guest_reader, &mut guest_writer, &word);
                // It does not matter whether the guest has read it.
                let _ = timeout(LINGER, parting).await;
                Err(CarryError::FirstRequest(wrong))
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads the head of the guest's first request.
async fn first(
    reader: &mut (impl AsyncRead + Unpin),
    mut requests: Requests,
) -> Result<(), CarryError> {
    let (mut buffer, mut judged) = (vec![0; READ_BYTES], Vec::new());
    while judged.is_empty() {
        let count = read(reader, &mut buffer, WITH_GUEST).await?.unwrap_or_default();
        if count == 0 {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(CarryError::Tls { with: WITH_GUEST, source });
        }
        requests.push(&buffer[..count], &mut judged)?;
    }
    Ok(())
}

/// Sends a final answer to the guest, and gives it time to read it.
async fn part(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    word: &[u8],
) -> io::Result<()> {
    writer.write_all(word).await?;
    writer.shutdown().await?;
    read_out(reader).await;
    Ok(())
}

/// Reads and discards what the guest still sends, up to its end.
async fn read_out(reader: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; READ_BYTES];
    while !matches!(read(reader, &mut buffer, WITH_GUEST).await, Ok(Some(0) | None) | Err(_)) {}
}

async fn within<T>(greeting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "its TLS handshake timed out");
    timeout(TLS_DEADLINE, greeting).await.map_err(slow)?
}

/// How a host's connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    InOrder,
    /// Without TLS's closing alert.
    Unsaid,
}

/// Forwards the guest's requests, each with its secrets.
async fn ask(
    mut guest: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    mut requests: Requests,
    agreement: oneshot::Receiver<bool>,
    used: impl Fn(Vec<String>),
) -> Result<(), CarryError> {
    let mut buffer = vec![0; READ_BYTES];
    // Each secret is reported once: a connection may have any number of requests.
    let mut reported = BTreeSet::new();
    let mut agreement = Some(agreement);
    let mut is_untouched = true;
    loop {
        if requests.awaits_agreement()
            && let Some(agreement) = agreement.take()
        {
            if agreement.await.unwrap_or(false) {
                break;
            }
            requests.declined();
        }
        if requests.is_over() {
            return Ok(());
        }
        let count = read(&mut guest, &mut buffer, WITH_GUEST).await?.unwrap_or_default();
        if count == 0 {
            return Ok(server.shutdown().await?);
        }
        // A piece at a time, because a few bytes of a head may become many.
        for piece in buffer[..count].chunks(FILLED_AT_ONCE_BYTES) {
            let mut judged = Vec::new();
            let pushed = requests.push(piece, &mut judged);
            let new: Vec<_> = requests
                .take_used()
                .into_iter()
                .filter(|name| reported.insert(name.clone()))
                .collect();
            if !new.is_empty() {
                used(new);
            }
            is_untouched &= judged.is_empty();
            let written = server.write_all(&judged).await;
            wipe(&mut judged);
            written?;
            match pushed {
                // Nothing was answered yet, so this answer can be sent.
                Err(wrong) if is_untouched => return Err(CarryError::FirstRequest(wrong)),
                pushed => pushed?,
            }
        }
        server.flush().await?;
    }
    loop {
        let count = read(&mut guest, &mut buffer, WITH_GUEST).await?.unwrap_or_default();
        if count == 0 {
            return Ok(server.shutdown().await?);
        }
        server.write_all(&buffer[..count]).await?;
        server.flush().await?;
    }
}

/// Forwards the host's answers as they arrive.
async fn answer(
    mut server: impl AsyncRead + Unpin,
    mut guest: impl AsyncWrite + Unpin,
    agreed: oneshot::Sender<bool>,
) -> Result<Close, CarryError> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut begun, mut agreed) = (Vec::new(), Some(agreed));
    loop {
        let read = read(&mut server, &mut buffer, WITH_HOST).await?;
        let Some(count) = read else { return Ok(Close::Unsaid) };
        if count == 0 {
            guest.shutdown().await?;
            return Ok(Close::InOrder);
        }
        let bytes = &buffer[..count];
        if agreed.is_some() {
            begun.extend_from_slice(bytes);
            if let Some(agrees) = agrees(&begun)
                && let Some(agreed) = agreed.take()
            {
                // Nobody waits if no switch was requested.
                let _ = agreed.send(agrees);
                begun = Vec::new();
            }
        }
        guest.write_all(bytes).await?;
        guest.flush().await?;
    }
}

/// Reads once; `Some(0)` at an orderly end, `None` at one without TLS's closing alert.
async fn read(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    with: &'static str,
) -> Result<Option<usize>, CarryError> {
    match from.read(buffer).await {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(source) => Err(CarryError::Tls { with, source }),
    }
}
