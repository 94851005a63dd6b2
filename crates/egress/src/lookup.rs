//! Resolves names to addresses with the host's resolver.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::dns::{self, DnsAnswer, TYPE_A, TYPE_AAAA};
use super::host::Host;
use super::limits::{
    ADDRESSES_MAX, FOUND_KEPT, FOUND_MAX, LOOKUP_DEADLINE, LOOKUPS_MAX, LOOKUPS_PER_SANDBOX_MAX,
    MESSAGE_BYTES_MAX, MISSED_KEPT, SERVER_PATIENCE, SERVER_TRIES,
};

/// For all sandboxes together, because each lookup holds a thread. Queries to a name server need no thread,
/// so nobody waits there for the slow names of others.
static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("there is no such name")]
    NoSuchName,
    #[error("the lookup failed: {0}")]
    Failed(String),
}

/// Looks names up for one sandbox, and remembers them for a while.
#[derive(Debug)]
pub struct Lookup {
    /// The server that is asked; the host's own resolver when absent.
    server: Option<SocketAddr>,
    turns: Semaphore,
    found: Mutex<HashMap<Host, (LookupResult, Instant)>>,
}

type LookupResult = Result<Vec<IpAddr>, LookupError>;

impl Lookup {
    pub fn new(server: Option<SocketAddr>) -> Self {
        let turns = Semaphore::new(LOOKUPS_PER_SANDBOX_MAX);
        Self { server, turns, found: Mutex::default() }
    }

    /// The addresses of a name: one at least.
    pub async fn addresses(&self, host: &Host) -> LookupResult {
        if let Some(known) = self.known(host) {
            return known;
        }
        let late = LookupError::Failed("no answer in time".to_owned());
        let looked_up = timeout(LOOKUP_DEADLINE, self.look_up(host)).await.unwrap_or(Err(late));
        self.remember(host, &looked_up);
        looked_up
    }

    fn known(&self, host: &Host) -> Option<LookupResult> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(host).filter(|(_, until)| *until > Instant::now()).map(|(known, _)| known.clone())
    }

    fn remember(&self, host: &Host, looked_up: &LookupResult) {
        let answer = match looked_up {
            Ok(_) => FOUND_KEPT,
            Err(LookupError::NoSuchName) => MISSED_KEPT,
            Err(LookupError::Failed(_)) => Duration::ZERO,
        };
        let now = Instant::now();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= FOUND_MAX {
            found.retain(|_, (_, until)| *until > now);
        }
        if found.len() < FOUND_MAX {
            found.insert(host.clone(), (looked_up.clone(), now + answer));
        }
    }

    async fn look_up(&self, host: &Host) -> LookupResult {
        // Neither is ever closed.
        let _turn = self.turns.acquire().await;
        let addresses = if let Some(server) = self.server {
            ask_both(server, host).await?
        } else {
            let _place = LOOKUPS.acquire().await;
            ask_host(host).await?
        };
        if addresses.is_empty() { Err(LookupError::NoSuchName) } else { Ok(addresses) }
    }
}

/// Asks as every program of the host does.
async fn ask_host(host: &Host) -> Result<Vec<IpAddr>, LookupError> {
    // The final dot makes the name absolute: the host's search list is not for sandboxes.
    let name = format!("{host}.");
    match tokio::net::lookup_host((name.as_str(), 0)).await {
        Ok(found) => {
            let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            addresses.dedup();
            addresses.truncate(ADDRESSES_MAX);
            Ok(addresses)
        }
        // Which of its reasons it was, the standard library says in words alone.
        Err(error) if is_missing(&error) => Err(LookupError::NoSuchName),
        Err(error) => Err(LookupError::Failed(error.to_string())),
    }
}

fn is_missing(error: &io::Error) -> bool {
    let text = error.to_string();
    ["not known", "No address associated", "does not exist", "has no"]
        .iter()
        .any(|words| text.contains(words))
}

async fn ask_both(server: SocketAddr, host: &Host) -> Result<Vec<IpAddr>, LookupError> {
    let (v4, v6) = tokio::join!(ask(server, host, TYPE_A), ask(server, host, TYPE_AAAA));
    match (v4, v6) {
        (Ok(v4), Ok(v6)) => Ok(interleaved(v4, v6)),
        // One kind of address is enough, unless the other one's failure hides that the name does
        // not exist.
        (Ok(addresses), Err(error)) | (Err(error), Ok(addresses)) if addresses.is_empty() => {
            Err(error)
        }
        (Ok(addresses), Err(_)) | (Err(_), Ok(addresses)) => Ok(addresses),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Both kinds by turns, so that neither has to fail in whole before the other is tried.
fn interleaved(v4: Vec<IpAddr>, v6: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = (v4.next(), v6.next());
        all.extend(pair.0);
        all.extend(pair.1);
        if pair == (None, None) {
            all.truncate(ADDRESSES_MAX);
            return all;
        }
    }
}

async fn ask(server: SocketAddr, host: &Host, kind: u16) -> Result<Vec<IpAddr>, LookupError> {
    const NO_SUCH_NAME: u16 = dns::Code::NoSuchName as u16;
    let failed = |error: io::Error| LookupError::Failed(error.to_string());
    let mut answer = Err(LookupError::Failed("the name server does not answer".to_owned()));
    for _ in 0..SERVER_TRIES {
        match timeout(SERVER_PATIENCE, ask_once(server, host, kind)).await {
            Ok(Ok(found)) => {
                answer = Ok(found);
                break;
            }
            Ok(Err(error)) => answer = Err(failed(error)),
            Err(_) => {}
        }
    }
    let found = answer?;
    match found.code {
        0 => Ok(found.addresses),
        NO_SUCH_NAME => Ok(Vec::new()),
        code => Err(LookupError::Failed(format!("the name server says {code}"))),
    }
}

async fn ask_once(server: SocketAddr, host: &Host, kind: u16) -> io::Result<DnsAnswer> {
    let id = draw()?;
    let question = dns::encode_question(id, host, kind);
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // A new port each time, so that an attacker has two numbers to guess.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let count = socket.recv(&mut buffer).await?;
        match dns::parse_answer(&buffer[..count], id, host, kind) {
            Some(found) if found.is_cut => break,
            Some(found) => return Ok(found),
            None => {}
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&(question.len() as u16).to_be_bytes()).await?;
    stream.write_all(&question).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    let found = dns::parse_answer(&answer, id, host, kind);
    found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the response has no answer to the question")
    })
}

fn draw() -> io::Result<u16> {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 2];
    let drawn = ring::rand::SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| io::Error::other("no random numbers"))?;
    Ok(u16::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_name_servers_answers_do_not_wait_for_those_of_the_hosts_resolver() {
        let all = u32::try_from(LOOKUPS_MAX).unwrap();
        let _taken = LOOKUPS.acquire_many(all).await.unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let lookup = Lookup::new(Some(server.local_addr().unwrap()));
        let address = Ipv4Addr::new(93, 184, 216, 34);
        tokio::spawn(async move {
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            loop {
                let (count, from) = server.recv_from(&mut buffer).await.unwrap();
                let question = dns::parse_question(&buffer[..count]).unwrap();
                let answer = match question.kind {
                    TYPE_A => dns::encode_address(&question, address, 60),
                    _ => dns::encode_plain(&question, dns::Code::Fine),
                };
                server.send_to(&answer, from).await.unwrap();
            }
        });
        let found = lookup.addresses(&"a.org".parse().unwrap()).await;
        assert_eq!(found, Ok(vec![address.into()]));
    }
}
