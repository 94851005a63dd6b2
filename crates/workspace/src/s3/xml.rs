//! Parses the XML that S3 sends: elements and text. It reads no document types, so the only entities are
//! XML's own five, and none can expand. Pure.

use super::limits::{XML_DEPTH_MAX, XML_NAME_BYTES_MAX};

/// Why a document is not S3's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("it is not valid UTF-8")]
    NotText,
    #[error("it ends too early")]
    Short,
    #[error("it has a document type or another construct that S3 does not send")]
    Foreign,
    #[error("it closes an element that was not opened")]
    Unpaired,
    #[error("it is nested more than {XML_DEPTH_MAX} deep")]
    Deep,
    #[error("it has an entity other than the five of XML")]
    Entity,
}

/// An event of the parser. A path is the names of the enclosing elements, and its own.
pub enum XmlEvent<'a> {
    /// An element without child elements, and its text.
    Leaf(&'a str, String),
    /// The end of one with others in it.
    End(&'a str),
}

/// Calls `tell` for each event, in order.
pub fn read(bytes: &[u8], mut tell: impl FnMut(XmlEvent<'_>)) -> Result<(), XmlError> {
    let mut rest = std::str::from_utf8(bytes).map_err(|_| XmlError::NotText)?;
    rest = rest.strip_prefix('\u{feff}').unwrap_or(rest);
    let (mut open, mut text, mut is_leaf) = (Vec::<&str>::new(), String::new(), false);
    let mut has_root = false;
    while let Some(at) = rest.find('<') {
        text.push_str(&unescape(&rest[..at])?);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('?') {
            rest = after.split_once("?>").ok_or(XmlError::Short)?.1;
            continue;
        }
        if let Some(after) = rest.strip_prefix("!--") {
            rest = after.split_once("-->").ok_or(XmlError::Short)?.1;
            continue;
        }
        if rest.starts_with('!') {
            return Err(XmlError::Foreign);
        }
        let (tag, after) = rest.split_once('>').ok_or(XmlError::Short)?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            if open.last() != Some(&local(name.trim_end())) {
                return Err(XmlError::Unpaired);
            }
            let path = open.join("/");
            if is_leaf {
                tell(XmlEvent::Leaf(&path, std::mem::take(&mut text)));
            } else {
                tell(XmlEvent::End(&path));
            }
            open.pop();
            is_leaf = false;
            continue;
        }
        has_root = true;
        text.clear();
        let is_empty = tag.ends_with('/');
        let name = tag.trim_end_matches('/').split([' ', '\t', '\r', '\n']).next().unwrap_or("");
        open.push(local(name));
        if name.len() > XML_NAME_BYTES_MAX {
            return Err(XmlError::Foreign);
        }
        if open.len() > XML_DEPTH_MAX {
            return Err(XmlError::Deep);
        }
        is_leaf = !is_empty;
        if is_empty {
            tell(XmlEvent::Leaf(&open.join("/"), String::new()));
            open.pop();
        }
    }
    if open.is_empty() && has_root { Ok(()) } else { Err(XmlError::Short) }
}

/// A name without its namespace prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn unescape(text: &str) -> Result<String, XmlError> {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, behind) = after.split_once(';').ok_or(XmlError::Entity)?;
        plain.push(match name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = name.strip_prefix('#').ok_or(XmlError::Entity)?;
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                    None => number.parse(),
                };
                code.ok().and_then(char::from_u32).ok_or(XmlError::Entity)?
            }
        });
        rest = behind;
    }
    plain.push_str(rest);
    Ok(plain)
}

/// Escapes text for our own documents.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(text: &str) -> Result<Vec<(String, String)>, XmlError> {
        let mut leaves = Vec::new();
        read(text.as_bytes(), |element| {
            if let XmlEvent::Leaf(path, text) = element {
                leaves.push((path.to_owned(), text));
            }
        })?;
        Ok(leaves)
    }

    #[test]
    fn elements_are_read_with_what_is_escaped_in_them() {
        let text = "<?xml version=\"1.0\"?>\n<!-- hm --><R xmlns=\"x\">\n <a>1 &lt;&amp;&#x41;&#66;</a>\n\
                    <b><c> </c><d/></b></R>";
        let elements: Vec<_> = leaves(text).unwrap();
        let want = [("R/a", "1 <&AB"), ("R/b/c", " "), ("R/b/d", "")];
        assert_eq!(elements, want.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }

    #[test]
    fn nothing_grows_and_nothing_hangs() {
        for (text, wrong) in [
            ("", XmlError::Short),
            ("plain", XmlError::Short),
            ("<a>", XmlError::Short),
            ("<a", XmlError::Short),
            ("<a></b>", XmlError::Unpaired),
            ("</a>", XmlError::Unpaired),
            ("<!DOCTYPE x [<!ENTITY a \"b\">]><x>&a;</x>", XmlError::Foreign),
            ("<x><![CDATA[y]]></x>", XmlError::Foreign),
            ("<x>&a;</x>", XmlError::Entity),
            ("<x>&#xD800;</x>", XmlError::Entity),
            ("<x>&amp</x>", XmlError::Entity),
        ] {
            assert_eq!(leaves(text), Err(wrong), "{text}");
        }
        assert_eq!(leaves(&format!("<{}>", "a".repeat(65))), Err(XmlError::Foreign));
        assert_eq!(leaves(&"<a>".repeat(100)), Err(XmlError::Deep));
        assert_eq!(read(b"\xff<a/>", |_| ()), Err(XmlError::NotText));
    }
}
