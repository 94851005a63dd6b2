//! The names of templates: a name, and a tag of one of its builds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::TEMPLATE_TAG_BYTES_MAX;
use crate::{InvalidName, Name};

/// The tag of a name without one.
const DEFAULT_TAG: &str = "default";

/// `name` or `name:tag`. `name:default` is `name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateName {
    pub base: Name,
    tag: Option<String>,
}

/// Why a text is not the name of a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplateName {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(
        "{0:?} is not a tag: use 1 to {TEMPLATE_TAG_BYTES_MAX} letters, digits, '_', '.' and '-', \
        beginning with a letter or digit"
    )]
    Tag(String),
}

impl TemplateName {
    /// The name with a tag.
    pub fn tagged(base: Name, tag: &str) -> Result<Self, InvalidTemplateName> {
        let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
        let is_good = tag.len() <= TEMPLATE_TAG_BYTES_MAX
            && tag.as_bytes().first().is_some_and(is_first)
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !is_good {
            let shown = tag.chars().take(TEMPLATE_TAG_BYTES_MAX + 1).collect();
            return Err(InvalidTemplateName::Tag(shown));
        }
        Ok(Self { base, tag: (tag != DEFAULT_TAG).then(|| tag.to_owned()) })
    }

    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }

    /// Its file's name, without an extension: no name has the separator.
    pub(super) fn stem(&self) -> String {
        match &self.tag {
            Some(tag) => format!("{}@{tag}", self.base),
            None => self.base.to_string(),
        }
    }
}

impl From<Name> for TemplateName {
    fn from(base: Name) -> Self {
        Self { base, tag: None }
    }
}

impl FromStr for TemplateName {
    type Err = InvalidTemplateName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some((name, tag)) => Self::tagged(name.parse()?, tag),
            None => Ok(text.parse::<Name>()?.into()),
        }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)?;
        self.tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))
    }
}

/// Which template is meant: its name, or `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateRef {
    pub namespace: Name,
    pub name: TemplateName,
}

impl FromStr for TemplateRef {
    type Err = InvalidTemplateName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) => {
                Ok(Self { namespace: namespace.parse()?, name: name.parse()? })
            }
            None => Ok(Self { namespace: Name::default_namespace(), name: text.parse()? }),
        }
    }
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace != Name::default_namespace() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.name)
    }
}

/// Both are their text in JSON.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(TemplateName, TemplateRef);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_shown() {
        for text in ["app", "app:v1.0", "A_b-c:9"] {
            let name: TemplateName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
        let plain: TemplateName = "app:default".parse().unwrap();
        assert_eq!(
            (plain.to_string(), plain.tag(), plain.stem()),
            ("app".into(), "default", "app".into())
        );
        assert_eq!("app:v1".parse::<TemplateName>().unwrap().stem(), "app@v1");
        let which: TemplateRef = "ci/app:v1".parse().unwrap();
        assert_eq!((which.to_string(), which.namespace.as_str()), ("ci/app:v1".into(), "ci"));
        assert_eq!("default/app".parse::<TemplateRef>().unwrap().to_string(), "app");
    }

    #[test]
    fn what_would_leave_its_directory_or_be_markup_is_no_name() {
        for text in
            ["", ":v1", "app:", "app:.x", "app:a/b", "a:b:c", "../app", "<b>", "app:<b>", "a@b"]
        {
            assert!(text.parse::<TemplateName>().is_err(), "{text:?} passed");
        }
        assert!("a/b/c".parse::<TemplateRef>().is_err());
        assert!(
            format!("a:{}", "x".repeat(TEMPLATE_TAG_BYTES_MAX + 1))
                .parse::<TemplateName>()
                .is_err()
        );
    }
}
