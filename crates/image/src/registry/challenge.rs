//! Parses `WWW-Authenticate` headers. Pure.

use std::collections::BTreeMap;

/// One way to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// Name and password with every request.
    Basic,
    /// A token from the server at `realm`.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The known ones of a header's value, which may hold several.
pub fn parse_challenges(value: &str) -> Vec<Challenge> {
    let mut rest = Rest(value);
    let mut challenges = Vec::new();
    let mut scheme: Option<String> = None;
    let mut parameters = BTreeMap::new();
    loop {
        rest.skip_separators();
        let word = rest.word();
        if word.is_empty() {
            break;
        }
        // A word with a value belongs to the current challenge; one without begins another.
        if let Some(value) = rest.value() {
            parameters.insert(word.to_ascii_lowercase(), value);
        } else {
            finish(scheme.as_deref(), &mut parameters, &mut challenges);
            scheme = Some(word.to_ascii_lowercase());
        }
    }
    finish(scheme.as_deref(), &mut parameters, &mut challenges);
    challenges
}

fn finish(
    scheme: Option<&str>,
    parameters: &mut BTreeMap<String, String>,
    challenges: &mut Vec<Challenge>,
) {
    let mut parameters = std::mem::take(parameters);
    let mut take = |name: &str| parameters.remove(name).filter(|value| !value.is_empty());
    match scheme {
        Some("basic") => challenges.push(Challenge::Basic),
        Some("bearer") => {
            if let Some(realm) = take("realm") {
                let (service, scope) = (take("service"), take("scope"));
                challenges.push(Challenge::Bearer { realm, service, scope });
            }
        }
        _ => {}
    }
}

/// The unread rest.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_separators(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', ',']);
    }

    /// A word; the characters of base64 are allowed, and `=` at its end.
    fn word(&mut self) -> &'a str {
        let is_inside = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
        let end = self.0.find(|c| !is_inside(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        if word.is_empty() {
            // Unexpected input: nothing after it can be trusted.
            self.0 = "";
        }
        word
    }

    /// The value after `=`, quoted or not.
    fn value(&mut self) -> Option<String> {
        let behind = self.0.trim_start().strip_prefix('=')?.trim_start();
        let Some(quoted) = behind.strip_prefix('"') else {
            let end = behind.find([',', ' ', '\t']).unwrap_or(behind.len());
            self.0 = &behind[end..];
            return Some(behind[..end].to_owned());
        };
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some(value);
                }
                '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
                plain => value.push(plain),
            }
        }
        self.0 = "";
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) }
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/x:pull""#;
        let expected = bearer(
            "https://auth.docker.io/token",
            Some("registry.docker.io"),
            Some("repository:library/x:pull"),
        );
        assert_eq!(parse_challenges(hub), [expected]);
        assert_eq!(parse_challenges("Basic realm=\"Registry\""), [Challenge::Basic]);
        assert_eq!(parse_challenges("basic"), [Challenge::Basic]);
        assert_eq!(
            parse_challenges(
                "Negotiate abc==, bearer Realm = \"https://a/?x=\\\"1\\\",2\" , Basic realm=x"
            ),
            [bearer("https://a/?x=\"1\",2", None, None), Challenge::Basic]
        );
        for nothing in ["", "Digest realm=\"x\"", "Bearer", "Bearer realm=\"\"", "=,=", "\"Basic\""]
        {
            assert_eq!(parse_challenges(nothing), [], "{nothing}");
        }
    }

    proptest::proptest! {
        #[test]
        fn headers_of_strangers_never_panic(value in "(Bearer |Basic )?[a-z=\", \\\\é]{0,60}") {
            let _ = parse_challenges(&value);
        }
    }
}
