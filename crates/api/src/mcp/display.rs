//! What code displays, as content for models: pictures as images, and the rest as text or as
//! resources with their types. Pure.
//!
//! Of the forms that a display has, the one that is most useful to a model is sent. Drawings (SVG)
//! and pages (HTML) are text, because no API takes them as images.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::repl::{Datum, Display, DisplayRole};
use rmcp::model::{ContentBlock, ResourceContents};

use super::cut::clip;
use super::limits::{
    DISPLAYS_BYTES_MAX, DISPLAYS_MAX, IMAGE_BYTES_MAX, READ_DISPLAY_BYTES_MAX, SHOWN_BYTES_MAX,
};
use crate::budget::Share;
use host::mime::is_picture;

/// The displays of a run that is under way, each as it was last updated.
#[derive(Debug, Default)]
pub struct Displays {
    shown: Vec<Display>,
    bytes: usize,
    /// Those that found no room.
    left_out: usize,
}

impl Displays {
    /// Takes the next display, if there is room for it, also in `memory`.
    pub fn take(&mut self, display: Display, memory: &Share) {
        let before = (display.role == DisplayRole::Update && display.id.is_some())
            .then(|| self.shown.iter().position(|known| known.id == display.id))
            .flatten();
        let freed = before.map_or(0, |at| bytes_of(&self.shown[at]));
        let bytes = bytes_of(&display);
        let has_place = before.is_some() || self.shown.len() < DISPLAYS_MAX;
        let has_room = has_place && self.bytes - freed + bytes <= DISPLAYS_BYTES_MAX;
        if !has_room || !memory.try_grow(bytes) {
            self.left_out += 1;
            return;
        }
        memory.shrink(freed);
        self.bytes = self.bytes - freed + bytes;
        match before {
            Some(at) => self.shown[at] = display,
            None => self.shown.push(display),
        }
    }

    /// The text of the last expression's value.
    pub fn value(&self) -> Option<String> {
        let value = self.shown.iter().rev().find(|shown| shown.role == DisplayRole::Value)?;
        let text = value.data.iter().find(|form| form.mime == "text/plain")?;
        Some(text.data.to_string_lossy().into_owned())
    }

    /// All of them as content. `place` is the sandbox in the addresses of resources.
    pub fn into_content(self, place: &str) -> Vec<ContentBlock> {
        let shown = self.shown.into_iter().enumerate();
        let mut content: Vec<_> =
            shown.map(|(at, display)| block(display, &format!("{place}/{at}"))).collect();
        if self.left_out > 0 {
            let count = self.left_out;
            content.push(ContentBlock::text(format!(
                "[{count} displays are left out: there are more than {DISPLAYS_MAX}, or they are \
                too large together]"
            )));
        }
        content
    }
}

fn bytes_of(display: &Display) -> usize {
    display.data.iter().map(|form| form.mime.len() + form.data.as_bytes().len()).sum()
}

fn block(display: Display, uri: &str) -> ContentBlock {
    let Some(form) = best(display.data) else {
        return ContentBlock::text("[a display without content]");
    };
    let Datum { mime, data } = form;
    let bytes = data.into_bytes();
    if is_picture(&mime) {
        if bytes.len() > IMAGE_BYTES_MAX {
            return ContentBlock::text(format!(
                "[a picture ({mime}) of {} bytes is left out: the limit is {IMAGE_BYTES_MAX}; show \
                a smaller one]",
                bytes.len()
            ));
        }
        return ContentBlock::image(STANDARD.encode(bytes), mime);
    }
    if !is_plain(&mime) && bytes.len() > READ_DISPLAY_BYTES_MAX {
        return ContentBlock::text(format!(
            "[a display ({mime}) of {} bytes is left out: the limit is {READ_DISPLAY_BYTES_MAX}; \
            write it to a file]",
            bytes.len()
        ));
    }
    let contents = match String::from_utf8(bytes) {
        Ok(text) if is_plain(&mime) => {
            return ContentBlock::text(clip(&text, SHOWN_BYTES_MAX));
        }
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
    };
    ContentBlock::resource(contents.with_mime_type(mime))
}

/// The form that a model makes most of: a picture, then what is written for reading, then whatever
/// comes first.
fn best(forms: Vec<Datum>) -> Option<Datum> {
    let rank = |mime: &str| match mime {
        mime if is_picture(mime) => 0,
        "image/svg+xml" => 1,
        "application/json" => 2,
        "text/markdown" => 3,
        "text/plain" => 4,
        "text/html" => 5,
        _ => 6,
    };
    // A page says more than the bare name of an object, and a table's text more than its page.
    let is_bare =
        |form: &Datum| form.mime == "text/plain" && form.data.as_bytes().starts_with(b"<");
    forms.into_iter().min_by_key(|form| if is_bare(form) { 7 } else { rank(&form.mime) })
}

fn is_plain(mime: &str) -> bool {
    matches!(mime, "text/plain" | "text/markdown" | "text/latex")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(role: DisplayRole, id: Option<&str>, forms: &[(&str, &[u8])]) -> Display {
        let data = forms
            .iter()
            .map(|(mime, data)| Datum { mime: (*mime).to_owned(), data: data.to_vec().into() });
        Display { role, id: id.map(str::to_owned), data: data.collect(), metadata: None }
    }

    fn content(forms: &[(&str, &[u8])]) -> ContentBlock {
        block(display(DisplayRole::Shown, None, forms), "burrow://x")
    }

    #[test]
    fn a_picture_is_an_image_and_a_drawing_is_text_with_its_kind() {
        let picture = content(&[("text/plain", b"<Figure>"), ("image/png", b"\x89PNG")]);
        let image = picture.as_image().expect("an image");
        assert_eq!((image.mime_type.as_str(), image.data.as_str()), ("image/png", "iVBORw=="));
        let drawing = content(&[("text/plain", b"<SVG>"), ("image/svg+xml", b"<svg/>")]);
        let resource = &drawing.as_resource().expect("a resource").resource;
        let written = serde_json::to_value(resource).expect("JSON");
        assert_eq!(written["mimeType"], "image/svg+xml");
        assert_eq!(written["text"], "<svg/>");
    }

    #[test]
    fn a_table_is_its_text_and_a_page_of_a_bare_object_is_the_page() {
        let table = content(&[("text/html", b"<table/>"), ("text/plain", b"a b\n1 2")]);
        assert_eq!(table.as_text().expect("text").text, "a b\n1 2");
        let page = content(&[("text/html", b"<b>x</b>"), ("text/plain", b"<HTML object>")]);
        let written = serde_json::to_value(page.as_resource().expect("a resource")).expect("JSON");
        assert_eq!(written["resource"]["mimeType"], "text/html");
    }

    #[test]
    fn an_update_takes_the_place_of_what_it_updates_and_too_many_are_counted() {
        let mut displays = Displays::default();
        let memory = Share::within(u64::MAX);
        let mut take = |shown| displays.take(shown, &memory);
        take(display(DisplayRole::Shown, Some("bar"), &[("text/plain", b"1 %")]));
        take(display(DisplayRole::Update, Some("bar"), &[("text/plain", b"99 %")]));
        for _ in 0..DISPLAYS_MAX {
            take(display(DisplayRole::Shown, None, &[("text/plain", b"x")]));
        }
        take(display(DisplayRole::Shown, None, &[("image/png", &vec![0; 9_000_000])]));
        let content = displays.into_content("burrow://x");
        assert_eq!(content[0].as_text().expect("text").text, "99 %");
        assert_eq!(content.len(), DISPLAYS_MAX + 1);
        assert!(content.last().expect("a note").as_text().expect("text").text.starts_with("[2 "));
    }

    #[test]
    fn what_is_too_long_to_read_is_cut_or_left_out_and_says_so() {
        let text = content(&[("text/plain", &vec![b'x'; SHOWN_BYTES_MAX + 1])]);
        assert!(text.as_text().expect("text").text.ends_with("of 32769 bytes]"));
        let page = content(&[("text/html", &vec![b'x'; READ_DISPLAY_BYTES_MAX + 1])]);
        assert!(page.as_text().expect("a note").text.contains("left out"));
    }

    #[test]
    fn a_picture_that_is_too_large_is_refused_as_such() {
        let large = content(&[("image/png", &vec![0; IMAGE_BYTES_MAX + 1])]);
        assert!(large.as_text().expect("text").text.contains("left out"));
    }
}
