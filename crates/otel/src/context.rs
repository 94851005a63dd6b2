//! The context of a trace as W3C Trace Context has it: `traceparent` and `tracestate`. Pure.

use std::fmt;
use std::sync::Arc;

use super::limits::{STATE_CHARS_MAX, STATE_ENTRIES_MAX, STATE_ENTRY_CHARS_MAX};
use host::hex;

/// The header, which programs find as the variable [`PARENT_VARIABLE`].
pub const PARENT: &str = "traceparent";
pub const STATE: &str = "tracestate";
pub const PARENT_VARIABLE: &str = "TRACEPARENT";
pub const STATE_VARIABLE: &str = "TRACESTATE";

/// The length of a `traceparent` of version 0, and of what a later one begins with.
const PARENT_BYTES: usize = 55;
/// The caller has chosen this trace to be recorded.
const SAMPLED: u8 = 0x01;
/// Its id is random, which those after it may rely on.
const RANDOM: u8 = 0x02;
/// The longest key and the longest value of an entry.
const STATE_PART_CHARS_MAX: usize = 256;

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::digits(&self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::digits(&self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A place in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub(super) flags: u8,
    /// What tracers of others have to say, as it is passed on.
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// The beginning of a trace.
    pub(super) fn root(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        Self { trace, span, flags: u8::from(is_sampled), state: None }
    }

    /// Another span of the same trace.
    pub(super) fn at(&self, span: SpanId) -> Self {
        Self { span, ..self.clone() }
    }

    /// What a caller has sent: the values of all headers of either name. `None` where there is no valid
    /// `traceparent`; a `tracestate` that is not valid is left out.
    pub fn parse<'a>(
        mut parents: impl Iterator<Item = &'a [u8]>,
        states: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
        let context = parse_parent(parent.trim_ascii())?;
        Some(Self { state: parse_state(states).map(Into::into), ..context })
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of the header, and of the variable.
    pub fn parent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

fn parse_parent(text: &[u8]) -> Option<TraceContext> {
    let known = text.get(..PARENT_BYTES)?;
    let version = byte(known.get(..2)?)?;
    // A later version may have more behind a dash; this one may not.
    let is_whole = match (version, text.get(PARENT_BYTES)) {
        (0xff, _) => false,
        (0, rest) => rest.is_none(),
        (_, rest) => rest.is_none_or(|first| *first == b'-'),
    };
    let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    if !is_whole || !has_dashes {
        return None;
    }
    let trace: [u8; 16] = bytes(&known[3..35])?;
    let span: [u8; 8] = bytes(&known[36..52])?;
    if trace == [0; 16] || span == [0; 8] {
        return None;
    }
    let flags = byte(&known[53..])? & (SAMPLED | RANDOM);
    Some(TraceContext { trace: TraceId(trace), span: SpanId(span), flags, state: None })
}

/// Digits in small letters only: others are invalid by the specification.
fn bytes<const COUNT: usize>(digits: &[u8]) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    for (place, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *place = byte(digits)?;
    }
    Some(bytes)
}

fn byte(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let [high, low] = digits else { return None };
    Some(value(*high)? << 4 | value(*low)?)
}

/// The entries of all headers in their order, as many as are passed on.
fn parse_state<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut entries: Vec<&str> = Vec::new();
    for header in headers {
        for entry in std::str::from_utf8(header).ok()?.split(',') {
            let entry = entry.trim_matches([' ', '\t']);
            // Headers may be empty, and so may what is between commas.
            if entry.is_empty() {
                continue;
            }
            let (key, value) = entry.split_once('=')?;
            let is_known =
                entries.iter().any(|known| known.split_once('=').map(|it| it.0) == Some(key));
            if !is_key(key) || !is_value(value) || is_known || entries.len() == STATE_ENTRIES_MAX {
                return None;
            }
            entries.push(entry);
        }
    }
    let length = |entries: &[&str]| entries.iter().map(|entry| entry.len() + 1).sum::<usize>();
    if length(&entries) > STATE_CHARS_MAX + 1 {
        entries.retain(|entry| entry.len() <= STATE_ENTRY_CHARS_MAX);
    }
    while length(&entries) > STATE_CHARS_MAX + 1 {
        entries.pop();
    }
    (!entries.is_empty()).then(|| entries.join(","))
}

fn is_key(key: &str) -> bool {
    let begins = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_good = |byte: u8| begins(byte) || b"_-*/@".contains(&byte);
    key.len() <= STATE_PART_CHARS_MAX
        && key.bytes().next().is_some_and(begins)
        && key.bytes().all(is_good)
}

fn is_value(value: &str) -> bool {
    let is_good = |byte: u8| matches!(byte, b' '..=b'~') && !b",=".contains(&byte);
    let is_long_enough = !value.is_empty() && value.len() <= STATE_PART_CHARS_MAX;
    is_long_enough && value.bytes().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(parents: &[&str], states: &[&str]) -> Option<TraceContext> {
        let own =
            |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        let (parents, states) = (own(parents), own(states));
        TraceContext::parse(parents.iter().map(Vec::as_slice), states.iter().map(Vec::as_slice))
    }

    #[test]
    fn a_valid_parent_is_written_as_it_came() {
        let context = parse(&[GOOD], &[]).unwrap();
        assert_eq!((context.parent().as_str(), context.is_sampled()), (GOOD, true));
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        let quiet = GOOD.replace("-01", "-00");
        assert!(!parse(&[&quiet], &[]).unwrap().is_sampled());
        // Of flags that nobody knows here none is passed on.
        assert_eq!(
            parse(&[&GOOD.replace("-01", "-ff")], &[]).unwrap().parent(),
            GOOD.replace("-01", "-03")
        );
    }

    #[test]
    fn a_parent_that_the_specification_calls_invalid_is_ignored() {
        let zeros = "0".repeat(32);
        let wrong = [
            String::new(),
            "00".to_owned(),
            GOOD.replacen("00", "ff", 1),
            GOOD.replacen("00", "0g", 1),
            GOOD.to_uppercase(),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
            GOOD.replace("b7ad6b7169203331", &zeros[..16]),
            GOOD.replace('-', "_"),
            format!("{GOOD}-"),
            format!("{GOOD}-what-the-future-holds"),
            format!("{GOOD}0"),
            GOOD[..54].to_owned(),
            format!("cc{}.more", &GOOD[2..]),
            GOOD.replace("-01", "-0é"),
        ];
        for text in &wrong {
            assert_eq!(parse(&[text], &[]), None, "{text}");
        }
        assert_eq!(parse(&[GOOD, GOOD], &[]), None, "two of them");
        assert_eq!(parse(&[], &["a=1"]), None);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known_and_written_as_this_one() {
        for text in [format!("cc{}", &GOOD[2..]), format!("cc{}-more", &GOOD[2..])] {
            assert_eq!(parse(&[&text], &[]).unwrap().parent(), GOOD, "{text}");
        }
        assert_eq!(parse(&[&format!(" {GOOD}\t")], &[]).unwrap().parent(), GOOD);
    }

    #[test]
    fn a_state_is_passed_on_or_left_out_as_a_whole() {
        let state = |states: &[&str]| parse(&[GOOD], states).unwrap().state().map(str::to_owned);
        assert_eq!(state(&["a=1, b@c=2", "", "d/e=3 4"]).as_deref(), Some("a=1,b@c=2,d/e=3 4"));
        for wrong in ["a", "A=1", "=1", "a=", "a=1=2", "a=1,a=2", "a b=1", "a=\u{e9}", "@a=1"] {
            assert_eq!(state(&[wrong]), None, "{wrong}");
        }
        let many =
            |count: usize| (0..count).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",");
        assert!(state(&[&many(STATE_ENTRIES_MAX)]).is_some());
        assert_eq!(state(&[&many(STATE_ENTRIES_MAX + 1)]), None);
        let long = format!("a=1,b={},c=2,d={}", "x".repeat(200), "x".repeat(250));
        assert_eq!(state(&[&format!("{long},e={}", "x".repeat(250))]).as_deref(), Some("a=1,c=2"));
        assert_eq!(state(&[&long]).map(|text| text.len()), Some(long.len()));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_strange_and_what_is_written_is_read_again(
            parent in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
            state in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
            ids in proptest::array::uniform24(1_u8..),
        ) {
            let _ = TraceContext::parse([parent.as_slice()].into_iter(), [state.as_slice()].into_iter());
            let (mut trace, mut span) = ([0; 16], [0; 8]);
            trace.copy_from_slice(&ids[..16]);
            span.copy_from_slice(&ids[16..]);
            let made = TraceContext::root(TraceId(trace), SpanId(span), ids[0].is_multiple_of(2));
            let text = made.parent();
            let read = TraceContext::parse([text.as_bytes()].into_iter(), [].into_iter());
            proptest::prop_assert_eq!(read, Some(made));
        }
    }
}
