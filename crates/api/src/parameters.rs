//! The variable parts of an operation's path.

/// The parts of a path that vary, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(pub(super) Vec<(&'static str, String)>);

impl Parameters {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}
