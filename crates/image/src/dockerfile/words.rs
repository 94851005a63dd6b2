//! Splits a Dockerfile's lines into words, removes quotes and expands variables. Pure.

use super::Fault;
use super::limits::{DEPTH_MAX, TEXT_BYTES_MAX, WORD_BYTES_MAX};

/// Cuts a text into words at white space outside of quotes. Quotes and escapes stay for [`expand`].
pub fn split(text: &str, escape: char) -> Result<Vec<String>, Fault> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if c == '"' || c == '\'' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
        word.push(c);
        if c == escape && quote != Some('\'') {
            word.extend(chars.next());
        }
    }
    if let Some(quote) = quote {
        return Err(Fault::Unclosed { what: quote.to_string() });
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Expands the variables in a here-document, like a shell: quotes are ordinary characters, and a backslash
/// only escapes a dollar sign and another backslash.
pub fn expand_text(
    text: &str,
    escape: char,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Fault> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = rest.as_str().chars().next();
        if c == '$' {
            let (value, after) = variable_at(rest.as_str(), escape, variable, DEPTH_MAX)?;
            out.push_str(&value);
            rest = after.chars();
        } else if c == escape && next.is_some_and(|next| next == '$' || next == escape) {
            out.extend(rest.next());
        } else {
            out.push(c);
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(Fault::TooLong { max: TEXT_BYTES_MAX });
        }
    }
    Ok(out)
}

/// Takes quotes away and fills in variables. What is not set is empty.
pub fn expand(
    word: &str,
    escape: char,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Fault> {
    expand_at(word, escape, variable, DEPTH_MAX)
}

fn expand_at(
    word: &str,
    escape: char,
    variable: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<String, Fault> {
    let mut out = String::new();
    let mut is_quoted = false;
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' if !is_quoted => {
                let text = rest.as_str();
                let end = text.find('\'').ok_or(Fault::Unclosed { what: "'".to_owned() })?;
                out.push_str(&text[..end]);
                rest = text[end + 1..].chars();
            }
            '"' => is_quoted = !is_quoted,
            c if c == escape => match rest.next() {
                Some(next) if is_quoted && !matches!(next, '"' | '$') && next != escape => {
                    out.extend([c, next]);
                }
                Some(next) => out.push(next),
                None => out.push(c),
            },
            '$' => {
                let (value, after) = variable_at(rest.as_str(), escape, variable, depth)?;
                out.push_str(&value);
                rest = after.chars();
            }
            c => out.push(c),
        }
        if out.len() > WORD_BYTES_MAX {
            return Err(Fault::TooLong { max: WORD_BYTES_MAX });
        }
    }
    if is_quoted { Err(Fault::Unclosed { what: "\"".to_owned() }) } else { Ok(out) }
}

/// The variable after a dollar sign: its value, and the rest of the text.
fn variable_at<'a>(
    text: &'a str,
    escape: char,
    variable: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<(String, &'a str), Fault> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let Some(inner) = text.strip_prefix('{') else {
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        // A dollar sign that names nothing is one.
        let value = if end == 0 { Some("$".to_owned()) } else { variable(&text[..end]) };
        return Ok((value.unwrap_or_default(), &text[end..]));
    };
    let end = closing(inner).ok_or(Fault::Unclosed { what: "${".to_owned() })?;
    let (inside, after) = (&inner[..end], &inner[end + 1..]);
    let name_end = inside.find(|c| !is_part(c)).unwrap_or(inside.len());
    let (name, how) = inside.split_at(name_end);
    let unknown = || Fault::Variable { text: format!("${{{inside}}}") };
    if name.is_empty() {
        return Err(unknown());
    }
    let set = variable(name);
    let (set, how) = match how.strip_prefix(':') {
        Some(how) => (set.filter(|value| !value.is_empty()), how),
        None => (set, how),
    };
    let other = |text: &str| {
        let deeper = depth.checked_sub(1).ok_or(Fault::TooDeep { max: DEPTH_MAX })?;
        expand_at(text, escape, variable, deeper)
    };
    let value = match (how.chars().next(), set) {
        (None, set) if inside == name => set.unwrap_or_default(),
        (Some('-'), Some(value)) => value,
        (Some('-'), None) | (Some('+'), Some(_)) => other(&how[1..])?,
        (Some('+'), None) => String::new(),
        _ => return Err(unknown()),
    };
    Ok((value, after))
}

/// The position of the brace that closes one opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}
