//! Stanzas of `Field: value` with continued lines, which indexes and apt's sources are made of.

/// One stanza; fields keep the order of the file, their names are compared without case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stanza<'a> {
    fields: Vec<(&'a str, String)>,
}

impl Stanza<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// The stanzas of a text; lines that are comments or nothing that is known are passed over.
pub fn stanzas(text: &str) -> impl Iterator<Item = Stanza<'_>> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut stanza = Stanza::default();
        for line in lines.by_ref() {
            if line.trim().is_empty() {
                if stanza.is_empty() {
                    continue;
                }
                return Some(stanza);
            }
            if line.starts_with('#') {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = stanza.fields.last_mut() {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                stanza.fields.push((name, value.trim().to_owned()));
            }
        }
        (!stanza.is_empty()).then_some(stanza)
    })
}

#[cfg(test)]
mod tests {
    use super::stanzas;

    #[test]
    fn stanzas_end_at_empty_lines_and_values_go_on_in_indented_ones() {
        let text = "\n# a note\nPackage: one\nTag: a,\n b\n\n\nPackage: two\nno field\nSIZE: 7";
        let all: Vec<_> = stanzas(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("Tag"), Some("a,\nb"));
        assert_eq!((all[1].get("package"), all[1].get("Size")), (Some("two"), Some("7")));
        assert_eq!(all[1].get("Tag"), None);
    }
}
