//! The operations on a bucket: list, read, write and remove objects. It does not decide who owns an
//! object.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::Method;
use ring::digest::{Context, SHA256};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use super::bucket::Bucket;
use super::error::S3Error;
use super::limits::{ATTEMPTS_MAX, DOCUMENT_BYTES_MAX, KEY_BYTES_MAX, LIST_BYTES_MAX};
use super::mode;
use super::sign::Keys;
use super::wire::{Answer, Content, Part, S3Request, Wire};
use super::xml::{self, XmlEvent};
use crate::manifest::Digest;
use crate::tree::digest_of;

/// An object of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub bytes: u64,
}

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub etag: String,
    pub bytes: u64,
}

/// An object that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedObject {
    pub etag: String,
    pub bytes: u64,
    pub mode: u32,
    pub digest: Digest,
}

/// The condition for writing or removing an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    New,
    /// It is the one with this tag.
    Match(String),
}

/// Speaks with one bucket.
pub struct Client {
    pub(super) wire: Wire,
    /// The server does not support conditions: the writer must look right before it writes.
    is_unconditional: AtomicBool,
}

impl Client {
    pub fn new(bucket: Bucket, keys: Option<Keys>) -> Self {
        Self { wire: Wire::new(bucket, keys), is_unconditional: AtomicBool::new(false) }
    }

    /// All objects whose keys begin so; None when they are more than `count_max`.
    pub async fn list(&self, count_max: u64) -> Result<Option<Vec<ListedObject>>, S3Error> {
        let (mut all, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut ask = self.listing();
            if let Some(token) = &token {
                ask = ask.query("continuation-token", token);
            }
            let answer = self.wire.send(&ask).await?;
            let body = self.wire.whole(LISTING, answer, LIST_BYTES_MAX).await?;
            let page = parse_list(&body)?;
            all.extend(page.objects);
            if all.len() as u64 > count_max {
                return Ok(None);
            }
            if !page.is_truncated {
                return Ok(Some(all));
            }
            // A server that sends the same page forever ends here.
            if page.next.is_none() || page.next == token {
                return Err(S3Error::Lacks { what: LISTING, lacks: "the token of the next page" });
            }
            token = page.next;
        }
    }

    fn listing(&self) -> S3Request {
        // Keys are read as they are: not every server that claims to encode them does, and
        // character references can carry control characters.
        let ask = S3Request::new(LISTING, Method::GET, "").query("list-type", "2");
        ask.query("prefix", &self.wire.bucket.prefix)
    }

    /// Whether the bucket answers at all. Its refusal says more than that of a head, which has no text.
    pub async fn probe(&self) -> Result<(), S3Error> {
        let answer = self.wire.send(&self.listing().query("max-keys", "1")).await?;
        self.wire.whole(LISTING, answer, LIST_BYTES_MAX).await.map(drop)
    }

    /// The metadata of an object; `None` if it does not exist.
    pub async fn head(&self, key: &str) -> Result<Option<Head>, S3Error> {
        let what = "reading an object's metadata";
        match self.wire.send(&S3Request::new(what, Method::HEAD, key)).await {
            Err(S3Error::Refused { status: 404, .. }) => Ok(None),
            Err(error @ (S3Error::Denied { .. } | S3Error::Refused { .. })) => {
                self.probe().await?;
                Err(error)
            }
            Err(error) => Err(error),
            Ok(answer) => {
                let etag = etag_of(&answer, what)?;
                let bytes = answer.header("content-length").and_then(|text| text.parse().ok());
                self.wire.keep(answer);
                Ok(Some(Head { etag, bytes: bytes.unwrap_or_default() }))
            }
        }
    }

    /// Reads an object into a file, or only for its digest; None when there is none. What breaks off is
    /// gone on with where it was, as long as it is the same object.
    pub async fn get(
        &self,
        key: &str,
        mut into: Option<&mut File>,
        bytes_max: u64,
    ) -> Result<Option<FetchedObject>, S3Error> {
        let what = "reading an object";
        let (mut reading, mut attempts) = (None::<ObjectReader>, 1);
        loop {
            let mut ask = S3Request::new(what, Method::GET, key);
            if let Some(reading) = reading.as_ref().filter(|reading| reading.found > 0) {
                ask = ask.header("range", format!("bytes={}-", reading.found));
                ask = ask.header("if-match", &reading.etag);
            }
            let answer = match self.wire.send(&ask).await {
                Err(S3Error::Refused { status: 404, .. }) => return Ok(None),
                // It is another by now.
                Err(S3Error::Refused { status: 412 | 416, .. }) if reading.is_some() => {
                    reading = None;
                    attempts += 1;
                    if attempts > ATTEMPTS_MAX {
                        return Err(S3Error::Contended);
                    }
                    continue;
                }
                answered => answered?,
            };
            let goes_on = |reading: &ObjectReader| reading.is_gone_on_with(&answer);
            let mut now = if let Some(reading) = reading.take().filter(goes_on) {
                reading
            } else {
                if let Some(file) = into.as_deref_mut() {
                    file.set_len(0).await?;
                    file.rewind().await?;
                }
                ObjectReader::of(&answer, what)?
            };
            if now.wanted > bytes_max {
                return Err(S3Error::TooLarge { what, bytes_max });
            }
            let before = now.found;
            match now.read(answer, into.as_deref_mut(), &self.wire).await {
                Ok(()) => {
                    let ObjectReader { etag, mode, context, found: bytes, .. } = now;
                    return Ok(Some(FetchedObject {
                        etag,
                        bytes,
                        mode,
                        digest: digest_of(context),
                    }));
                }
                Err(error) if error.is_passing() && attempts < ATTEMPTS_MAX => {
                    // An attempt that read something does not count as failed.
                    attempts = if now.found > before { 1 } else { attempts + 1 };
                    reading = Some(now);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes an object of a whole file, if the condition holds; its tag.
    pub async fn put(
        &self,
        key: &str,
        part: Part,
        mode: u32,
        condition: &Condition,
    ) -> Result<String, S3Error> {
        let what = "writing an object";
        let mut ask = S3Request::new(what, Method::PUT, key);
        ask = ask.header("content-type", "application/octet-stream");
        ask = ask.header(mode::HEADER, mode::write(mode));
        ask.content = Content::Part(part);
        let answer = self.send_if(ask, condition).await?;
        let etag = etag_of(&answer, what)?;
        self.wire.whole(what, answer, DOCUMENT_BYTES_MAX).await?;
        Ok(etag)
    }

    /// Removes one, if it is the one with this tag.
    pub async fn delete(&self, key: &str, etag: &str) -> Result<(), S3Error> {
        let what = "removing an object";
        let condition = Condition::Match(etag.to_owned());
        match self.send_if(S3Request::new(what, Method::DELETE, key), &condition).await {
            Err(S3Error::Refused { status: 404, .. }) => Ok(()),
            answered => self.wire.whole(what, answered?, DOCUMENT_BYTES_MAX).await.map(drop),
        }
    }

    /// Sends a request with a condition, or without it to a server that does not support any.
    pub(super) async fn send_if(
        &self,
        ask: S3Request,
        condition: &Condition,
    ) -> Result<Answer, S3Error> {
        if self.is_unconditional.load(Ordering::Relaxed) {
            return self.send_looking(&ask, condition).await;
        }
        let conditional = match condition {
            Condition::New => ask.clone().header("if-none-match", "*"),
            Condition::Match(etag) => ask.clone().header("if-match", etag),
        };
        match self.wire.send(&conditional).await {
            Err(S3Error::Refused { status: 501, .. }) => {
                self.is_unconditional.store(true, Ordering::Relaxed);
                self.send_looking(&ask, condition).await
            }
            answered => answered,
        }
    }

    /// Looks right before, for a server that does not do it by itself.
    async fn send_looking(
        &self,
        ask: &S3Request,
        condition: &Condition,
    ) -> Result<Answer, S3Error> {
        let found = self.head(&ask.key).await?;
        let holds = match (condition, &found) {
            (Condition::New, found) => found.is_none(),
            (Condition::Match(etag), Some(found)) => found.etag == *etag,
            (Condition::Match(_), None) => false,
        };
        if !holds {
            let code = "PreconditionFailed".to_owned();
            return Err(S3Error::Refused { what: ask.what, status: 412, code });
        }
        self.wire.send(ask).await
    }

    pub(super) async fn post(
        &self,
        what: &'static str,
        mut ask: S3Request,
        body: String,
    ) -> Result<Vec<u8>, S3Error> {
        ask.content = Content::Whole(Bytes::from(body));
        let answer = self.wire.send(&ask).await?;
        self.wire.whole(what, answer, DOCUMENT_BYTES_MAX).await
    }
}

const LISTING: &str = "listing its objects";

/// The tag of an object, with its quotes: they are a part of it.
pub(super) fn etag_of(answer: &Answer, what: &'static str) -> Result<String, S3Error> {
    let etag = answer.header("etag").map(str::to_owned);
    etag.ok_or(S3Error::Lacks { what, lacks: "the ETag of the object" })
}

/// An object that is being read.
struct ObjectReader {
    etag: String,
    mode: u32,
    wanted: u64,
    found: u64,
    context: Context,
}

impl ObjectReader {
    fn of(answer: &Answer, what: &'static str) -> Result<Self, S3Error> {
        let length = answer.header("content-length").and_then(|text| text.parse().ok());
        Ok(Self {
            etag: etag_of(answer, what)?,
            mode: answer.header(mode::HEADER).map_or(mode::USUAL, mode::read),
            wanted: length.ok_or(S3Error::Lacks { what, lacks: "the length of the object" })?,
            found: 0,
            context: Context::new(&SHA256),
        })
    }

    /// Whether an answer continues at this position, with the same object.
    fn is_gone_on_with(&self, answer: &Answer) -> bool {
        let begins = format!("bytes {}-", self.found);
        let is_from_here = |range: &str| range.trim().starts_with(&begins);
        answer.status == 206
            && answer.header("etag") == Some(self.etag.as_str())
            && answer.header("content-range").is_some_and(is_from_here)
    }

    async fn read(
        &mut self,
        mut answer: Answer,
        mut into: Option<&mut File>,
        wire: &Wire,
    ) -> Result<(), S3Error> {
        while let Some(piece) = answer.next().await? {
            self.found += piece.len() as u64;
            if self.found > self.wanted {
                break;
            }
            self.context.update(&piece);
            if let Some(file) = into.as_deref_mut() {
                file.write_all(&piece).await?;
                file.flush().await?;
            }
        }
        if self.found != self.wanted {
            return Err(S3Error::Short { wanted: self.wanted, found: self.found });
        }
        wire.keep(answer);
        Ok(())
    }
}

/// A page of a list.
#[derive(Default)]
struct Page {
    objects: Vec<ListedObject>,
    is_truncated: bool,
    next: Option<String>,
}

fn parse_list(body: &[u8]) -> Result<Page, S3Error> {
    let (what, mut page) = (LISTING, Page::default());
    let (mut now, mut is_list, mut is_long) = (ListedObject::default(), false, false);
    let read = xml::read(body, |element| match element {
        XmlEvent::Leaf("ListBucketResult/Contents/Key", text) => {
            is_long |= text.len() > KEY_BYTES_MAX;
            now.key = text;
        }
        // An invalid size does not count as small.
        XmlEvent::Leaf("ListBucketResult/Contents/Size", text) => {
            now.bytes = text.trim().parse().unwrap_or(u64::MAX);
        }
        XmlEvent::Leaf("ListBucketResult/IsTruncated", text) => {
            page.is_truncated = text.trim() == "true";
        }
        XmlEvent::Leaf("ListBucketResult/NextContinuationToken", text) => page.next = Some(text),
        XmlEvent::End("ListBucketResult/Contents") => page.objects.push(std::mem::take(&mut now)),
        XmlEvent::End("ListBucketResult") => is_list = true,
        _ => {}
    });
    read.map_err(|why| S3Error::Malformed { what, why })?;
    if is_long {
        return Err(S3Error::TooLarge { what, bytes_max: KEY_BYTES_MAX as u64 });
    }
    if !is_list {
        return Err(S3Error::Lacks { what, lacks: "the list" });
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_what_is_none_is_refused() {
        let text = "<ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated><Contents><Key>a/b+c%&#x1;</Key>\
                    <Size>3</Size><Owner><ID>x</ID></Owner></Contents><Contents><Key>d</Key><Size>-1</Size>\
                    </Contents><NextContinuationToken>t&amp;</NextContinuationToken>\
                    </ListBucketResult>";
        let page = parse_list(text.as_bytes()).unwrap();
        let listed = |key: &str, bytes| ListedObject { key: key.to_owned(), bytes };
        assert_eq!(page.objects, [listed("a/b+c%\u{1}", 3), listed("d", u64::MAX)]);
        assert!(page.is_truncated && page.next.as_deref() == Some("t&"));
        for text in ["<html>hello</html>", "<a", ""] {
            assert!(parse_list(text.as_bytes()).is_err(), "{text}");
        }
    }
}
