//! The guest's name server. It answers with an address for each allowed name and refuses all others.

use std::sync::Arc;

use tokio::time::timeout;

use super::carry::Stream;
use super::connect::{ConnectError, permitted};
use super::dns::{
    Code, Question, QuestionError, TYPE_A, TYPE_PTR, encode_address, encode_name, encode_plain,
    encode_wrong, parse_question, reversed,
};
use super::event::{EventSubject, Verdict};
use super::host::Host;
use super::limits::{ANSWER_TTL_S, MESSAGE_BYTES_MAX, QUESTION_IDLE, QUESTIONS_PER_CONNECTION_MAX};
use super::lookup::LookupError;
use super::{Shared, names};
use agent_client::guest::GuestError;

/// Why a name that is allowed has no address in the guest.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAddress {
    #[error(transparent)]
    Names(#[from] names::NamesError),
    #[error("the guest cannot listen on its address: {0}")]
    Guest(#[from] GuestError),
}

/// Answers the queries of one connection. The agent sends datagrams in the form of TCP queries.
pub(super) async fn serve(shared: &Arc<Shared>, mut stream: Stream) {
    for _ in 0..QUESTIONS_PER_CONNECTION_MAX {
        let message = timeout(QUESTION_IDLE, read_message(&mut stream)).await;
        let Ok(Some(message)) = message else { break };
        let Some(answer) = answer(shared, &message).await else { return };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        if !matches!(timeout(QUESTION_IDLE, stream.write(&framed)).await, Ok(Ok(()))) {
            return;
        }
    }
    let _ = timeout(QUESTION_IDLE, stream.finish()).await;
}

/// A message with its length before it; `None` at the end, or when it is none.
async fn read_message(stream: &mut Stream) -> Option<Vec<u8>> {
    let length = stream.take(2).await?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length > MESSAGE_BYTES_MAX {
        return None;
    }
    stream.take(length).await
}

/// The answer to a message; `None` if it must not be answered.
async fn answer(shared: &Arc<Shared>, message: &[u8]) -> Option<Vec<u8>> {
    let question = match parse_question(message) {
        Ok(question) => question,
        Err(QuestionError::Nothing) => return None,
        Err(QuestionError::Answer { id, flags, code }) => {
            return Some(encode_wrong(id, flags, code));
        }
    };
    if !shared.questions.try_take() {
        let why = "too many lookups in a short time";
        shared.reporter.refuse(EventSubject::Name, &question.name, None, why);
        return Some(encode_plain(&question, Code::Failed));
    }
    if question.kind == TYPE_PTR {
        return Some(name_of_address(shared, &question).await);
    }
    Some(address_of_name(shared, &question).await)
}

async fn name_of_address(shared: &Shared, question: &Question) -> Vec<u8> {
    let host = match reversed(&question.name) {
        Some(address) => shared.names.lock().await.host(address),
        None => None,
    };
    match host {
        Some(host) => encode_name(question, &host, ANSWER_TTL_S),
        None => encode_plain(question, Code::NoSuchName),
    }
}

async fn address_of_name(shared: &Arc<Shared>, question: &Question) -> Vec<u8> {
    let refuse = |host: &str, why: &dyn std::fmt::Display| {
        shared.reporter.refuse(EventSubject::Name, host, None, why);
    };
    let plain = |code| encode_plain(question, code);
    let Ok(host) = question.name.parse::<Host>() else {
        refuse(&question.name, &"it is not a host name");
        return plain(Code::NoSuchName);
    };
    let Some(rule) = shared.rules.naming(&host) else {
        refuse(host.as_str(), &"no rule allows it");
        return plain(Code::NoSuchName);
    };
    if question.kind != TYPE_A {
        // It exists, and has nothing of the kind.
        return plain(Code::Fine);
    }
    match permitted(&shared.lookup, &shared.allow_private, &host).await {
        Ok(_) => {}
        Err(ConnectError::Lookup(LookupError::NoSuchName)) => {
            refuse(host.as_str(), &LookupError::NoSuchName);
            return plain(Code::NoSuchName);
        }
        Err(why @ ConnectError::Address { .. }) => {
            refuse(host.as_str(), &why);
            return plain(Code::NoSuchName);
        }
        Err(why) => {
            refuse(host.as_str(), &why);
            return plain(Code::Failed);
        }
    }
    match shared.address_of(&host).await {
        Ok(address) => {
            let verdict = Verdict::Allowed { rule, address: None };
            shared.reporter.report(EventSubject::Name, host.as_str(), None, verdict);
            encode_address(question, address, ANSWER_TTL_S)
        }
        Err(why) => {
            refuse(host.as_str(), &why);
            plain(Code::Failed)
        }
    }
}

impl Shared {
    /// The address that stands for a name in the guest, where something listens by now.
    pub(super) async fn address_of(
        self: &Arc<Self>,
        host: &Host,
    ) -> Result<std::net::Ipv4Addr, NoAddress> {
        let mut names = self.names.lock().await;
        let given = names.give(host).await?;
        if let Some(address) = given.lost {
            // A program that still connects there is refused, because nothing listens.
            self.gates.forget(address);
        }
        if given.is_new {
            self.open_ports(host, given.address)?;
            names.opened(host);
        }
        Ok(given.address)
    }
}
