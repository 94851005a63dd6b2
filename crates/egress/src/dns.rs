//! The part of DNS that egress needs: it parses and answers the guest's questions, and asks questions of
//! a server. Pure. Its input is untrusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::Host;
use super::limits::{ADDRESSES_MAX, ALIASES_MAX};

const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;
/// Each leads to an earlier place, so that this many are a loop or mischief.
const POINTERS_MAX: usize = 32;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 128;

const CLASS_INTERNET: u16 = 1;
pub const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
pub const TYPE_PTR: u16 = 12;
pub const TYPE_AAAA: u16 = 28;

const IS_RESPONSE: u16 = 1 << 15;
const OPERATION: u16 = 0xf << 11;
const IS_CUT: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;
const CODE: u16 = 0xf;

/// The response code of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Fine = 0,
    Malformed = 1,
    Failed = 2,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// A question that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    id: u16,
    flags: u16,
    /// As text, with the parts separated by dots; not every one is a valid host name.
    pub name: String,
    pub kind: u16,
    /// The bytes of the question as received; the answer repeats them.
    bytes: Vec<u8>,
}

/// Why a message is not answered as a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionError {
    /// It cannot be answered, because not even its header is known.
    Nothing,
    /// The header could be read; answer with this code.
    Answer { id: u16, flags: u16, code: Code },
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    pub code: u16,
    /// There was more to say than fits.
    pub is_cut: bool,
    pub addresses: Vec<IpAddr>,
}

/// Reads a question.
pub fn parse_question(message: &[u8]) -> Result<Question, QuestionError> {
    let (id, flags, counts) = header(message).ok_or(QuestionError::Nothing)?;
    if flags & IS_RESPONSE != 0 {
        return Err(QuestionError::Nothing);
    }
    let wrong = |code| QuestionError::Answer { id, flags, code };
    if flags & OPERATION != 0 {
        return Err(wrong(Code::NotImplemented));
    }
    if counts[0] != 1 {
        return Err(wrong(Code::Malformed));
    }
    let read = read_name(message, HEADER_BYTES, false).ok_or(wrong(Code::Malformed))?;
    let (name, end) = read;
    let kind = number(message, end).ok_or(wrong(Code::Malformed))?;
    let class = number(message, end + 2).ok_or(wrong(Code::Malformed))?;
    if class != CLASS_INTERNET {
        return Err(wrong(Code::NotImplemented));
    }
    let bytes = message[HEADER_BYTES..end + 4].to_vec();
    Ok(Question { id, flags, name, kind, bytes })
}

/// An answer without a record.
pub fn encode_plain(question: &Question, code: Code) -> Vec<u8> {
    encode(question, code, &[], 0)
}

/// An answer with an address for the name that was asked for.
pub fn encode_address(question: &Question, address: Ipv4Addr, ttl_s: u32) -> Vec<u8> {
    encode(question, Code::Fine, &address.octets(), ttl_s)
}

/// An answer with the name of the address that was asked for.
pub fn encode_name(question: &Question, host: &Host, ttl_s: u32) -> Vec<u8> {
    encode(question, Code::Fine, &name_bytes(host), ttl_s)
}

/// An answer to a message that could not be read.
pub fn encode_wrong(id: u16, flags: u16, code: Code) -> Vec<u8> {
    head(id, flags, code, 0, 0)
}

fn encode(question: &Question, code: Code, data: &[u8], ttl_s: u32) -> Vec<u8> {
    /// A pointer to the name right after the header.
    const NAME_OF_QUESTION: u16 = 0xc000 | HEADER_BYTES as u16;
    let answers = u16::from(!data.is_empty());
    let mut message = head(question.id, question.flags, code, 1, answers);
    message.extend_from_slice(&question.bytes);
    if answers > 0 {
        message.extend_from_slice(&NAME_OF_QUESTION.to_be_bytes());
        message.extend_from_slice(&question.kind.to_be_bytes());
        message.extend_from_slice(&CLASS_INTERNET.to_be_bytes());
        message.extend_from_slice(&ttl_s.to_be_bytes());
        message.extend_from_slice(&(data.len() as u16).to_be_bytes());
        message.extend_from_slice(data);
    }
    message
}

fn head(id: u16, request_flags: u16, code: Code, questions: u16, answers: u16) -> Vec<u8> {
    let flags = IS_RESPONSE
        | (request_flags & (OPERATION | RECURSION_DESIRED))
        | RECURSION_AVAILABLE
        | code as u16;
    [id, flags, questions, answers, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A question for the addresses of a host.
pub fn encode_question(id: u16, host: &Host, kind: u16) -> Vec<u8> {
    let words = [id, RECURSION_DESIRED, 1, 0, 0, 0];
    let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend(name_bytes(host));
    message.extend(kind.to_be_bytes());
    message.extend(CLASS_INTERNET.to_be_bytes());
    message
}

fn name_bytes(host: &Host) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(host.as_str().len() + 2);
    for label in host.as_str().split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// Reads the answer to our question; `None` if it is no answer to it.
pub fn parse_answer(message: &[u8], id: u16, host: &Host, kind: u16) -> Option<DnsAnswer> {
    let (its_id, flags, counts) = header(message)?;
    if its_id != id || flags & IS_RESPONSE == 0 || counts[0] != 1 {
        return None;
    }
    let (name, end) = read_name(message, HEADER_BYTES, true)?;
    if !name.eq_ignore_ascii_case(host.as_str()) || number(message, end)? != kind {
        return None;
    }
    let records = read_records(message, end + 4, usize::from(counts[1]));
    let mut found =
        DnsAnswer { code: flags & CODE, is_cut: flags & IS_CUT != 0, addresses: Vec::new() };
    // Aliases may come in any order of records.
    let mut names = vec![host.as_str().to_owned()];
    for _ in 0..ALIASES_MAX {
        let alias = records.iter().find_map(|record| match &record.data {
            Data::Alias(to) if record.is_of(&names) && !names.contains(to) => Some(to.clone()),
            _ => None,
        });
        match alias {
            Some(alias) => names.push(alias),
            None => break,
        }
    }
    let addresses = records.iter().filter(|record| record.is_of(&names));
    found.addresses = addresses
        .filter_map(|record| match record.data {
            Data::Address(address) => Some(address),
            Data::Alias(_) => None,
        })
        .take(ADDRESSES_MAX)
        .collect();
    Some(found)
}

struct Record {
    name: String,
    data: Data,
}

enum Data {
    Address(IpAddr),
    Alias(String),
}

impl Record {
    fn is_of(&self, names: &[String]) -> bool {
        names.contains(&self.name)
    }
}

/// The records that matter, up to the first that cannot be read.
fn read_records(message: &[u8], mut at: usize, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    for _ in 0..count.min(RECORDS_MAX) {
        let Some((record, end)) = read_record(message, at) else { break };
        records.extend(record);
        at = end;
    }
    records
}

fn read_record(message: &[u8], at: usize) -> Option<(Option<Record>, usize)> {
    let (name, at) = read_name(message, at, true)?;
    let (kind, class) = (number(message, at)?, number(message, at + 2)?);
    let length = usize::from(number(message, at + 8)?);
    let start = at + 10;
    let data = message.get(start..start + length)?;
    let data = match (class, kind) {
        (CLASS_INTERNET, TYPE_A) => {
            let octets: [u8; 4] = data.try_into().ok()?;
            Some(Data::Address(Ipv4Addr::from(octets).into()))
        }
        (CLASS_INTERNET, TYPE_AAAA) => {
            let octets: [u8; 16] = data.try_into().ok()?;
            Some(Data::Address(Ipv6Addr::from(octets).into()))
        }
        (CLASS_INTERNET, TYPE_CNAME) => {
            Some(Data::Alias(read_name(message, start, true)?.0.to_ascii_lowercase()))
        }
        _ => None,
    };
    let record = data.map(|data| Record { name: name.to_ascii_lowercase(), data });
    Some((record, start + length))
}

fn header(message: &[u8]) -> Option<(u16, u16, [u16; 2])> {
    message.get(..HEADER_BYTES)?;
    let word = |at| number(message, at);
    Some((word(0)?, word(2)?, [word(4)?, word(6)?]))
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A name as text, and where it ends. A part with a dot or anything unprintable in it becomes
/// something that no host is called.
fn read_name(message: &[u8], mut at: usize, may_point: bool) -> Option<(String, usize)> {
    const POINTER: u8 = 0b1100_0000;
    let mut name = String::new();
    let (mut end, mut pointers, mut bytes) = (None, 0, 0);
    loop {
        let length = *message.get(at)?;
        match length & POINTER {
            0 if length == 0 => return Some((name, end.unwrap_or(at + 1))),
            0 => {
                let label = message.get(at + 1..at + 1 + usize::from(length))?;
                bytes += label.len() + 1;
                if bytes > NAME_BYTES_MAX {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                let show = |byte: &u8| match byte {
                    b'.' => '?',
                    byte if byte.is_ascii_graphic() => char::from(*byte),
                    _ => '?',
                };
                name.extend(label.iter().map(show));
                at += 1 + label.len();
            }
            POINTER if may_point && pointers < POINTERS_MAX => {
                let to = usize::from(number(message, at)? & !(u16::from(POINTER) << 8));
                end.get_or_insert(at + 2);
                // Forwards would be a loop sooner or later.
                if to >= at {
                    return None;
                }
                (at, pointers) = (to, pointers + 1);
            }
            _ => return None,
        }
    }
}

/// The address that a question for the name of an address is about: `4.3.2.1.in-addr.arpa`.
pub fn reversed(name: &str) -> Option<Ipv4Addr> {
    let name = name.to_ascii_lowercase();
    let digits = name.trim_end_matches('.').strip_suffix(".in-addr.arpa")?;
    let mut octets = digits.split('.').map(|part| part.parse::<u8>().ok());
    let (d, c, b, a) = (octets.next()??, octets.next()??, octets.next()??, octets.next()??);
    octets.next().is_none().then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests;
