//! What a sandbox may reach, as microsandbox's clients say it, and the rules of egress that it is.
//!
//! Their rules are tried in order, of addresses, names, protocols and ports. The server's own are a list of
//! names that may be reached. What means the same in both is taken, and all else is refused.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::answer::lacking;
use sandbox::refusal::Refusal;

/// Networking of a creation. Without a policy it is what the operator has set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    enabled: bool,
    /// Names that do not fit the rules are always refused here.
    #[serde(rename = "strict")]
    _strict: Option<Value>,
    policy: Option<Policy>,
    secrets: Option<Secrets>,
}

impl Default for Network {
    fn default() -> Self {
        Self { enabled: true, _strict: None, policy: None, secrets: None }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Policy {
    default_egress: String,
    rules: Vec<Value>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Secrets {
    entries: Vec<Value>,
}

const RULES: &str = "network rules besides those that allow a domain, or the public network, at all \
    ports; set `egress` through the server's own API";

impl Network {
    /// The rules of egress; none for the operator's own.
    pub fn egress(&self) -> Result<Option<Vec<String>>, Refusal> {
        if self.secrets.as_ref().is_some_and(|secrets| !secrets.entries.is_empty()) {
            return Err(lacking(
                "secrets of a client; the operator names them in the configuration",
            ));
        }
        if !self.enabled {
            return Ok(Some(Vec::new()));
        }
        let Some(policy) = &self.policy else { return Ok(None) };
        match policy.default_egress.as_str() {
            "allow" if policy.rules.is_empty() => Ok(Some(vec!["public".to_owned()])),
            "" | "deny" => {
                let rules = policy.rules.iter().map(allowed);
                Ok(Some(rules.collect::<Result<Vec<_>, _>>()?.concat()))
            }
            _ => Err(lacking(RULES)),
        }
    }
}

/// What one rule allows.
fn allowed(rule: &Value) -> Result<Vec<String>, Refusal> {
    let is_empty = |name: &str| rule[name].as_array().is_none_or(Vec::is_empty);
    let is_plain = rule["action"] == "allow"
        && rule["direction"] == "egress"
        && is_empty("protocols")
        && is_empty("ports");
    let to = &rule["destination"];
    let text = |name: &str| to[name].as_str();
    match (text("domain"), text("domain_suffix"), text("group")) {
        _ if !is_plain => Err(lacking(RULES)),
        (Some(name), None, None) => Ok(vec![name.to_owned()]),
        (None, Some(name), None) => {
            let name = name.trim_start_matches('.');
            Ok(vec![name.to_owned(), format!("*.{name}")])
        }
        (None, None, Some("public")) => Ok(vec!["public".to_owned()]),
        _ => Err(lacking(RULES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::refusal::Code;

    fn egress(text: &str) -> Result<Option<Vec<String>>, Refusal> {
        serde_json::from_str::<Network>(text).unwrap().egress()
    }

    #[test]
    fn a_policy_is_rules_of_egress_or_the_operators_own_or_refused() {
        let rules = |list: &[&str]| Ok(Some(list.iter().map(|rule| (*rule).to_owned()).collect()));
        assert_eq!(egress("{}"), Ok(None));
        assert_eq!(egress(r#"{"enabled":true,"strict":true}"#), Ok(None));
        assert_eq!(egress(r#"{"enabled":false}"#), rules(&[]));
        assert_eq!(egress(r#"{"policy":{"default_egress":"deny","rules":[]}}"#), rules(&[]));
        assert_eq!(egress(r#"{"policy":{"default_egress":"allow"}}"#), rules(&["public"]));
        let one = r#"{"policy":{"default_egress":"deny","rules":[{"direction":"egress","action":"allow",
            "destination":{"domain_suffix":".a.example"},"protocols":[],"ports":[]}]}}"#;
        assert_eq!(egress(one), rules(&["a.example", "*.a.example"]));
        for other in [
            r#"{"policy":{"default_egress":"allow","rules":[{"action":"deny"}]}}"#,
            r#"{"policy":{"default_egress":"deny","rules":[{"direction":"egress","action":"allow",
                "destination":{"cidr":"10.0.0.0/8"}}]}}"#,
            r#"{"policy":{"default_egress":"deny","rules":[{"direction":"egress","action":"allow",
                "destination":{"domain":"a.example"},"ports":[{"start":80,"end":80}]}]}}"#,
            r#"{"policy":{"default_egress":"deny","rules":[7]}}"#,
            r#"{"secrets":{"entries":[{"env_var":"A"}]}}"#,
        ] {
            assert_eq!(egress(other).unwrap_err().code, Code::Unsupported, "{other}");
        }
    }
}
