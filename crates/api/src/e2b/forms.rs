//! The bodies and queries of E2B's REST calls, as its clients write them. A creation refuses fields that it does
//! not know; elsewhere they are passed over, as E2B does.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::Call;
use sandbox::refusal::{Code, Refusal};

/// A sandbox to make. A field that it does not know may ask for something.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Create {
    #[serde(rename = "templateID")]
    pub template: String,
    pub timeout: Option<i64>,
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(rename = "autoPause")]
    pub auto_pause: Option<bool>,
    /// Absent means yes.
    #[serde(rename = "autoPauseMemory")]
    pub auto_pause_memory: Option<bool>,
    #[serde(rename = "autoResume")]
    pub auto_resume: Option<AutoResume>,
    pub allow_internet_access: Option<bool>,
    pub network: Option<Network>,
    pub iam: Option<Value>,
    #[serde(rename = "volumeMounts")]
    pub volume_mounts: Option<Vec<Mount>>,
    /// Older clients ask for tokens, which there always are.
    #[serde(rename = "secure")]
    _secure: Option<Value>,
    /// The client starts that program by itself.
    #[serde(rename = "mcp")]
    _mcp: Option<Value>,
}

/// A volume of the namespace, and the path at which programs find it.
#[derive(Debug, Deserialize)]
pub struct Mount {
    pub name: String,
    pub path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AutoResume {
    pub enabled: bool,
}

/// What a sandbox may reach.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Network {
    pub allow_out: Option<Vec<String>>,
    pub deny_out: Option<Vec<String>>,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timeout {
    pub timeout: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refresh {
    pub duration: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pause {
    /// Absent means yes.
    pub memory: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TakeSnapshot {
    pub name: Option<String>,
    pub memory: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fork {
    pub count: Option<u32>,
    pub timeout: Option<i64>,
}

/// What a running sandbox may reach from now on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NetworkUpdate {
    pub allow_internet_access: Option<bool>,
    #[serde(flatten)]
    pub network: Network,
}

/// Names of a network's settings that ask for nothing beyond what there is.
const HARMLESS: [&str; 1] = ["allowPublicTraffic"];
/// All that is not allowed by name.
const EVERYTHING: &str = "0.0.0.0/0";

impl Network {
    /// The rules of egress that come of it; none for the operator's own.
    pub fn egress(
        &self,
        allow_internet_access: Option<bool>,
    ) -> Result<Option<Vec<String>>, Refusal> {
        let mut others = self.others.iter();
        let other =
            others.find(|(name, value)| is_asked(value) && !HARMLESS.contains(&name.as_str()));
        if let Some((name, _)) = other {
            return Err(lacking(&format!("network.{name}")));
        }
        let allowed = self.allow_out.clone().unwrap_or_default();
        let denied = self.deny_out.clone().unwrap_or_default();
        let denies_all =
            allow_internet_access == Some(false) || denied.iter().any(|range| range == EVERYTHING);
        if !denies_all && !denied.is_empty() {
            return Err(lacking("network.denyOut with single addresses"));
        }
        if !denies_all && !allowed.is_empty() {
            return Err(Refusal::invalid(
                "network.allowOut has an effect only with denyOut = [\"0.0.0.0/0\"]",
            ));
        }
        Ok(denies_all.then_some(allowed))
    }
}

impl Create {
    /// The rules of egress that come of it; none for the operator's own.
    pub fn egress(&self) -> Result<Option<Vec<String>>, Refusal> {
        let none = Network::default();
        self.network.as_ref().unwrap_or(&none).egress(self.allow_internet_access)
    }

    /// Whether it is paused at the end of its time, instead of ended.
    pub fn pauses(&self) -> bool {
        self.auto_pause == Some(true)
    }

    /// Whether any request wakes it then.
    pub fn resumes(&self) -> bool {
        self.auto_resume.as_ref().is_some_and(|asked| asked.enabled)
    }

    /// Refuses what no machine of this server does.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.pauses() && self.auto_pause_memory == Some(false) {
            return Err(lacking("a pause that keeps only the files"));
        }
        if self.resumes() && !self.pauses() {
            return Err(Refusal::invalid("autoResume has an effect only with autoPause"));
        }
        if self.iam.as_ref().is_some_and(is_asked) {
            return Err(lacking("iam"));
        }
        Ok(())
    }
}

fn is_asked(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}

/// The refusal of something that E2B has and this server does not.
pub fn lacking(what: &str) -> Refusal {
    Refusal::new(Code::Unsupported, format!("not supported by this server: {what}"))
}

/// The milliseconds of a time that is in seconds.
pub fn millis(seconds: i64) -> Result<u64, Refusal> {
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Ok(seconds.saturating_mul(1000)),
        _ => Err(Refusal::invalid(format!("timeout must be at least 1 s, not {seconds}"))),
    }
}

/// The fields of a call's query string.
pub fn fields(call: &Call) -> Result<Vec<(String, String)>, Refusal> {
    pairs(&call.query)
}

/// The pairs of a query string.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    serde_html_form::from_str(text)
        .map_err(|error| Refusal::invalid(format!("the query string: {error}")))
}

/// One of them.
pub fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// The pairs of a filter by metadata: a query string within the query string, with its parts encoded once
/// more.
pub fn metadata(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    let decoded = pairs(text)?.into_iter().map(|(key, value)| {
        let decode = crate::route::percent_decode;
        let pair = decode(&key).zip(decode(&value));
        pair.ok_or_else(|| Refusal::invalid("metadata is not percent-encoded UTF-8"))
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox_options::assert_form;
    use sandbox::options::Door;

    #[test]
    fn a_creation_has_the_options_that_the_table_says() {
        let own = ["autoPauseMemory", "autoResume", "iam", "secure", "mcp"];
        assert_form::<Create>(Door::E2b, &own);
    }

    #[test]
    fn a_field_of_a_creation_that_nobody_knows_is_refused() {
        let read = |text| serde_json::from_str::<Create>(text);
        assert!(read(r#"{"templateID":"base","secure":true,"mcp":{}}"#).is_ok());
        assert!(read(r#"{"templateID":"base","memoryMB":512}"#).is_err());
    }

    #[test]
    fn a_filter_by_metadata_is_encoded_twice() {
        let found = metadata("a%2520b=c%2526d&e=f").unwrap();
        assert_eq!(found, [("a b".to_owned(), "c&d".to_owned()), ("e".to_owned(), "f".to_owned())]);
    }

    #[test]
    fn a_sandbox_reaches_what_is_allowed_by_name_or_the_operators_own() {
        let read = |text| serde_json::from_str::<Create>(text).unwrap().egress();
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read(r#"{"network":{"allowPublicTraffic":true}}"#).unwrap(), None);
        let none: Option<Vec<String>> = Some(Vec::new());
        assert_eq!(read(r#"{"allow_internet_access":false}"#).unwrap(), none);
        let some = r#"{"network":{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"]}}"#;
        assert_eq!(read(some).unwrap(), Some(vec!["a.example".to_owned()]));
        for refused in [
            r#"{"network":{"denyOut":["10.0.0.0/8"]}}"#,
            r#"{"network":{"allowOut":["a.example"]}}"#,
            r#"{"network":{"maskRequestHost":"x"}}"#,
        ] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
