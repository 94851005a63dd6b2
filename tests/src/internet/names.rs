//! A name server that answers as a test wants: as every other one would, otherwise with each question,
//! or as none should.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{CERTIFIED, WEB};

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
/// The largest message that is read.
const MESSAGE_BYTES_MAX: usize = 4096;
/// A name that exists by default, with all names below it, as those do that the web's
/// certificate is for.
const UNCERTIFIED: &str = "example.edu";

/// How a query is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Addresses of the requested kind.
    Addresses(Vec<IpAddr>),
    /// With these aliases in a chain, and the last one's address.
    Aliases(Vec<String>, IpAddr),
    Missing,
    /// The server has failed.
    Failed,
    /// Over UDP it does not fit.
    OverTcp(Vec<IpAddr>),
    /// These bytes after the query's id.
    Bytes(Vec<u8>),
    Silence,
}

impl Answer {
    /// # Panics
    /// When one of the texts is no address.
    pub fn addresses(texts: &[&str]) -> Self {
        Self::Addresses(texts.iter().map(|text| text.parse().expect("an address")).collect())
    }
}

/// The answers. Clones share them.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// With the number of queries for each kind of address.
    answers: HashMap<String, (Vec<Answer>, [usize; 2])>,
    requests: Vec<String>,
}

impl Names {
    /// Answers at this address until the test is over.
    ///
    /// # Panics
    /// When it is not to be had.
    pub fn serve(at: Ipv4Addr) -> Self {
        let names = Self::default();
        let udp = UdpSocket::bind((at, 53)).expect("the port of names");
        let tcp = TcpListener::bind((at, 53)).expect("the port of names");
        let (of_udp, of_tcp) = (names.clone(), names.clone());
        thread::spawn(move || of_udp.serve_udp(&udp));
        thread::spawn(move || of_tcp.serve_tcp(&tcp));
        names
    }

    /// From now on a name has these answers, in turn, and then the last one forever. The kinds of addresses
    /// have separate turns, since they are queried concurrently.
    pub fn set(&self, name: &str, answers: &[Answer]) {
        self.table().answers.insert(name.to_owned(), (answers.to_vec(), [0; 2]));
    }

    /// The names that were asked for, in order; each once for all of its kinds of addresses.
    pub fn requests(&self) -> Vec<String> {
        self.table().requests.clone()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = self.answer(&buffer[..count], false) {
                socket.send_to(&answer, from).ok();
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            let names = self.clone();
            thread::spawn(move || {
                let mut stream = stream;
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                    let Ok(()) = stream.read_exact(&mut message) else { return };
                    let Some(answer) = names.answer(&message, true) else { return };
                    let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
                    let Ok(()) = stream.write_all(&framed) else { return };
                }
            });
        }
    }

    fn answer(&self, question: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let (name, end) = read_name(question)?;
        let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
        let question_name = question.get(HEADER_BYTES..end + 4)?;
        let id = &question[..2];
        let whole = |flags: u16, records: &[Vec<u8>]| {
            let head = [0x8180 | flags, 1, records.len() as u16, 0, 0].map(u16::to_be_bytes);
            Some([id, &head.concat(), question_name, &records.concat()].concat())
        };
        match self.look_up(&name, kind) {
            Answer::Missing => whole(3, &[]),
            Answer::Failed => whole(2, &[]),
            Answer::Silence => None,
            Answer::Bytes(bytes) => Some([id, &bytes].concat()),
            Answer::OverTcp(_) if !is_tcp => whole(1 << 9, &[]),
            Answer::OverTcp(addresses) | Answer::Addresses(addresses) => {
                let ours = addresses.iter().filter_map(|address| data(*address, kind));
                let records: Vec<_> = ours.map(|data| record(&name, kind, &data)).collect();
                whole(0, &records)
            }
            Answer::Aliases(aliases, address) => {
                let mut records = Vec::new();
                let mut from = name;
                for alias in aliases {
                    records.push(record(&from, TYPE_CNAME, &encode_name(&alias)));
                    from = alias;
                }
                records.extend(data(address, kind).map(|data| record(&from, kind, &data)));
                // The order is not guaranteed.
                records.reverse();
                whole(0, &records)
            }
        }
    }

    fn look_up(&self, name: &str, kind: u16) -> Answer {
        let mut table = self.table();
        if kind == TYPE_A {
            table.requests.push(name.to_owned());
        }
        if let Some((answers, turns)) = table.answers.get_mut(name) {
            let turn = &mut turns[usize::from(kind == TYPE_AAAA)];
            let answer = answers.get(*turn).or(answers.last()).cloned();
            *turn += 1;
            return answer.unwrap_or(Answer::Missing);
        }
        let mut usual = CERTIFIED.iter().chain([&UNCERTIFIED]);
        let is_usual = usual.any(|usual| {
            name.strip_suffix(usual).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        if is_usual { Answer::Addresses(vec![WEB.into()]) } else { Answer::Missing }
    }
}

fn data(address: IpAddr, kind: u16) -> Option<Vec<u8>> {
    match (address, kind) {
        (IpAddr::V4(address), TYPE_A) => Some(address.octets().to_vec()),
        (IpAddr::V6(address), TYPE_AAAA) => Some(address.octets().to_vec()),
        _ => None,
    }
}

fn record(name: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let class_and_ttl = [0, 1, 0, 0, 0, 1];
    let length = (data.len() as u16).to_be_bytes();
    [&encode_name(name), &kind.to_be_bytes()[..], &class_and_ttl, &length, data].concat()
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The name of a question in small letters, and where it ends.
fn read_name(question: &[u8]) -> Option<(String, usize)> {
    let (mut at, mut labels) = (HEADER_BYTES, Vec::new());
    loop {
        let length = usize::from(*question.get(at)?);
        if length == 0 {
            return Some((labels.join("."), at + 1));
        }
        let label = question.get(at + 1..at + 1 + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + length;
    }
}
