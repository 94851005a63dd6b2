//! The parts of a form with files (`multipart/form-data`), as their bytes come. Pure.

use bytes::{Bytes, BytesMut};

use super::limits::PART_HEAD_BYTES_MAX;
use sandbox::refusal::Refusal;

/// What comes next of a form.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A part begins.
    Part(Part),
    /// Bytes of it.
    Bytes(Bytes),
    /// It is whole.
    PartEnd,
    /// Nothing more can be said before more bytes come.
    More,
    /// The form is whole.
    End,
}

/// The head of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub filename: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before a boundary's line is over.
    Boundary,
    Head,
    Body,
    End,
}

/// See the module's description.
pub struct Form {
    /// What ends a part: a line break and the boundary.
    delimiter: Vec<u8>,
    buffered: BytesMut,
    at: At,
}

impl Form {
    /// Of the boundary that a content type names.
    pub fn of(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.trim().split_once('=')?;
            name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"'))
        })?;
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first boundary has no line before it.
        Some(Self { delimiter, buffered: BytesMut::from(&b"\r\n"[..]), at: At::Boundary })
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(bytes);
    }

    pub fn step(&mut self) -> Result<Step, Refusal> {
        match self.at {
            At::Boundary => self.boundary(),
            At::Head => self.head(),
            At::Body => Ok(self.body()),
            At::End => Ok(Step::End),
        }
    }

    /// The boundary itself, and whether it is the last.
    fn boundary(&mut self) -> Result<Step, Refusal> {
        let length = self.delimiter.len();
        if self.buffered.len() < length + 2 {
            return Ok(Step::More);
        }
        if !self.buffered.starts_with(&self.delimiter) {
            return Err(Refusal::invalid("the form does not begin with its boundary"));
        }
        match &self.buffered[length..length + 2] {
            b"--" => self.at = At::End,
            b"\r\n" => self.at = At::Head,
            _ => return Err(Refusal::invalid("a boundary of the form is not followed by a line")),
        }
        drop(self.buffered.split_to(length + 2));
        self.step()
    }

    fn head(&mut self) -> Result<Step, Refusal> {
        let Some(end) = find(&self.buffered, b"\r\n\r\n") else {
            if self.buffered.len() > PART_HEAD_BYTES_MAX {
                return Err(Refusal::invalid("the head of a part of the form is too long"));
            }
            return Ok(Step::More);
        };
        let head = self.buffered.split_to(end + 4);
        let head = String::from_utf8_lossy(&head[..end]).into_owned();
        let mut part = Part::default();
        for line in head.split("\r\n") {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.trim().eq_ignore_ascii_case("content-disposition") {
                part.name = quoted(value, "name").unwrap_or_default();
                part.filename = quoted(value, "filename");
            }
        }
        self.at = At::Body;
        Ok(Step::Part(part))
    }

    fn body(&mut self) -> Step {
        match find(&self.buffered, &self.delimiter) {
            Some(0) => {
                self.at = At::Boundary;
                Step::PartEnd
            }
            Some(end) => Step::Bytes(self.buffered.split_to(end).freeze()),
            None => {
                // The end of what is here may be the beginning of the boundary.
                let safe = self.buffered.len().saturating_sub(self.delimiter.len() - 1);
                if safe == 0 {
                    Step::More
                } else {
                    Step::Bytes(self.buffered.split_to(safe).freeze())
                }
            }
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A parameter of a header, as browsers write it: `%22` for a quote.
fn quoted(value: &str, name: &str) -> Option<String> {
    let begin = value.find(&format!("; {name}=\""))? + name.len() + 4;
    let rest = value.get(begin..)?;
    let text = rest.get(..rest.find('"')?)?;
    Some(text.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"--x\r\nContent-Disposition: form-data; name=\"file\"; \
        filename=\"/a/\xc3\xa9%22.txt\"\r\nContent-Type: text/plain\r\n\r\none\r\n--tw\r\n--x\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"b\"\r\n\r\n\r\n--x--\r\n";

    fn read(pieces: &[&[u8]]) -> Vec<(Part, Vec<u8>)> {
        let mut form = Form::of("multipart/form-data; boundary=x").unwrap();
        let mut parts = Vec::new();
        let mut pieces = pieces.iter();
        loop {
            match form.step().unwrap() {
                Step::Part(part) => parts.push((part, Vec::new())),
                Step::Bytes(bytes) => parts.last_mut().unwrap().1.extend_from_slice(&bytes),
                Step::PartEnd => {}
                Step::More => form.push(pieces.next().expect("the form is whole")),
                Step::End => return parts,
            }
        }
    }

    #[test]
    fn parts_are_the_same_wherever_their_bytes_are_cut() {
        let expected = read(&[FORM]);
        let names: Vec<_> = expected.iter().map(|(part, _)| part.filename.clone()).collect();
        assert_eq!(names, [Some("/a/é\".txt".to_owned()), Some("b".to_owned())]);
        assert_eq!(expected[0].1, b"one\r\n--tw");
        assert!(expected[1].1.is_empty());
        for cut in 0..FORM.len() {
            assert_eq!(read(&[&FORM[..cut], &FORM[cut..]]), expected, "{cut}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused() {
        assert!(Form::of("application/json").is_none());
        assert!(Form::of("multipart/form-data").is_none());
        let mut form = Form::of("multipart/form-data; boundary=\"x\"").unwrap();
        form.push(b"nonsense that is long enough");
        assert!(form.step().is_err());
    }
}
