//! Why a request was not carried out, as JSON-RPC says it.
//!
//! | code | what |
//! |---|---|
//! | -32700, -32600, -32601, -32602, -32603 | as JSON-RPC 2.0 has them |
//! | -32000 | it is not in a state in which that can be done |
//! | -32001 | there is no such sandbox |
//! | -32002 | the key does not reach that far |
//! | -32003 | a limit is reached; asking again later may help |
//! | -32004 | it ran out of time, and was ended |
//! | -32005 | the program could not be started |
//! | -32006 | the sandbox did not start |
//! | -32007 | the sandbox is gone or does not answer |

use hyper::StatusCode;
use serde_json::{Value, json};

use super::hints;
use super::written::Written;
use crate::Api;
use crate::forms::problem::cut;
use crate::problem::status as status_of;
use access::keys::RetryAfter;
use agent_client::guest::GuestError;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};
use sandbox::{SandboxError, SandboxRef};

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const UNKNOWN_METHOD: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const REFUSED: i64 = -32000;
const NO_SANDBOX: i64 = -32001;
const FORBIDDEN: i64 = -32002;
const LIMIT: i64 = -32003;
pub const TIMED_OUT: i64 = -32004;
const NOT_STARTED: i64 = -32005;
const NO_START: i64 = -32006;
const UNREACHABLE: i64 = -32007;

/// See the module's description.
#[derive(Debug)]
pub struct Failure {
    code: i64,
    /// Words that a person can act on: the SDKs show nothing else.
    message: String,
    data: Option<Written>,
    /// Of the HTTP answer, when this is all of it.
    status: StatusCode,
    retry_after: Option<RetryAfter>,
    /// The same in the words of the native API.
    reason: Code,
    /// The sandbox whose agent is gone, until its record is asked why.
    unanswered: Option<Box<SandboxRef>>,
}

impl Failure {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        let message = message.into();
        let reason = match code {
            TIMED_OUT => Code::DeadlineExceeded,
            INTERNAL => Code::Internal,
            _ => Code::Invalid,
        };
        let (status, retry_after) = (StatusCode::OK, None);
        Self { code, message, data: None, status, retry_after, reason, unanswered: None }
    }

    /// A parameter is missing or is not what it should be.
    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    #[must_use]
    pub fn data(mut self, data: Written) -> Self {
        self.data = Some(data);
        self
    }

    /// What became of something that was asked of a sandbox's agent.
    pub fn inside(which: &SandboxRef, error: GuestError) -> Self {
        let is_cut = matches!(error, GuestError::Link(_));
        let mut failure = Self::from(Refusal::from(error));
        if is_cut {
            let message = failure.message;
            failure.message =
                format!("the sandbox {which} was stopped or no longer answers: {message}");
            failure.unanswered = Some(Box::new(which.clone()));
        }
        if failure.code == FORBIDDEN {
            // It is the sandbox that refuses, whatever the key.
            (failure.code, failure.status) = (REFUSED, StatusCode::OK);
        }
        failure
    }

    /// The same with what became of a sandbox whose agent is gone, as its record says it.
    pub async fn explained(mut self, api: &Api) -> Self {
        if let Some(which) = self.unanswered.take()
            && let Some(state) = api.end_of(&which).await
        {
            self.message = cut(format!("the sandbox {which} is {state}"));
        }
        self
    }

    pub fn code(&self) -> i64 {
        self.code
    }

    pub fn reason(&self) -> Code {
        self.reason
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn retry_after(&self) -> Option<RetryAfter> {
        self.retry_after
    }

    /// The error object.
    pub fn into_written(self) -> Written {
        let code = format!("{{\"code\":{},\"message\":", self.code);
        let head = Written::default().text(&code).value(&self.message);
        match self.data {
            Some(data) => head.text(",\"data\":").then(data).text("}"),
            None => head.text("}"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, hint, details, retry_after, .. } = refusal;
        let number = match code {
            Code::Invalid
            | Code::Unsupported
            | Code::UnknownSecret
            | Code::UnknownWorkspace
            | Code::WorkspaceFailed => INVALID_PARAMS,
            Code::UnsupportedMediaType | Code::TooLarge => INVALID_REQUEST,
            Code::NotFound => NO_SANDBOX,
            Code::Unauthenticated | Code::Forbidden | Code::Misdirected => FORBIDDEN,
            Code::RateLimited
            | Code::LimitReached
            | Code::CapExceeded
            | Code::InsufficientStorage
            | Code::Unavailable => LIMIT,
            Code::DeadlineExceeded | Code::RequestTimeout | Code::AppNotReady => TIMED_OUT,
            Code::SpawnFailed | Code::AppFailed | Code::ModuleMissing => NOT_STARTED,
            Code::StartFailed | Code::SecretFailed | Code::PullFailed => NO_START,
            Code::GuestUnreachable | Code::PortUnreachable => UNREACHABLE,
            Code::Internal => INTERNAL,
            Code::MethodNotAllowed
            | Code::NotAcceptable
            | Code::Conflict
            | Code::IdempotencyMismatch
            | Code::Gone
            | Code::RangeNotSatisfiable
            | Code::Io => REFUSED,
        };
        let status = match code {
            Code::Forbidden
            | Code::RateLimited
            | Code::LimitReached
            | Code::CapExceeded
            | Code::InsufficientStorage
            | Code::Unavailable => status_of(code),
            _ => StatusCode::OK,
        };
        let mut data = json!({ "reason": code.name() });
        if let Some(Value::Object(details)) = details.map(|details| *details) {
            data["details"] = Value::Object(details);
        }
        let message = cut(message);
        let message = match hint.and_then(|hint| hints::words(&hint)) {
            Some(hint) => format!("{message}; {hint}"),
            None => message,
        };
        // A client that has to come again needs to know when, and in a batch no header says it.
        let retry_after = retry_after.or((number == LIMIT).then_some(BUSY_PAUSE)).map(RetryAfter);
        if let Some(pause) = retry_after {
            data["retry_after"] = pause.seconds().into();
        }
        let data = Some(Written::of(&data));
        let unanswered = None;
        Self { code: number, message, data, status, retry_after, reason: code, unanswered }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        Refusal::from(error).into()
    }
}
