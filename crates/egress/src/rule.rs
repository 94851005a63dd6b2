//! What a sandbox may reach: rules as people write them, and how they match a name and a port. Pure.
//!
//! ```text
//!  example.org        that name, at ports 80 and 443
//!  example.org:5432   that name, at that port alone
//!  *.example.org      every name below it, and not the name itself
//!  public             every name of the internet; public:22 the same at that port
//!  @pypi              the hosts of a package registry: `preset` has the table
//!  none               alone: nothing at all, as no rule does
//! ```

use std::collections::BTreeMap;
use std::fmt;

use super::host::{Host, InvalidHost};
use super::limits::{PORTS_PER_NAME_MAX, RULES_MAX};
use super::preset;

/// Ports of a rule that names none.
pub const WEB_PORTS: [u16; 2] = [80, 443];

const PUBLIC: &str = "public";
const NONE: &str = "none";
const BELOW: &str = "*.";

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    whom: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Exactly(Host),
    Below(Host),
    Public,
}

/// All rules of one sandbox. None allow nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Why a rule cannot be kept to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("{rule:?} does not name a host: {why}")]
    Host { rule: String, why: InvalidHost },
    #[error(
        "{rule:?} has an invalid port: write a number from 1 to 65535 after the colon, or leave the colon out"
    )]
    Port { rule: String },
    #[error(
        "{rule:?} has a star in the wrong place: write *.example.org, or `public` for all hosts"
    )]
    Star { rule: String },
    #[error("{rule:?} is a URL or an address range: write only a host name")]
    Url { rule: String },
    #[error("{rule:?} is not a preset; these are: {}", known.join(", "))]
    Preset { rule: String, known: Vec<&'static str> },
    #[error("{count} rules are too many; the limit is {RULES_MAX}")]
    TooMany { count: usize },
    #[error("`{NONE}` allows nothing and cannot be combined with other rules")]
    NoneAmongOthers,
    #[error("{name} is allowed at more than {PORTS_PER_NAME_MAX} ports, the limit")]
    TooManyPorts { name: String },
}

/// Rules for sandboxes that name none.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    pub all: Vec<String>,
    /// A namespace's own rules replace those for all.
    pub namespaces: BTreeMap<String, Vec<String>>,
}

impl Defaults {
    pub fn of(&self, namespace: &str) -> &[String] {
        self.namespaces.get(namespace).unwrap_or(&self.all)
    }
}

impl Rules {
    /// Reads rules as people write them.
    pub fn parse(texts: &[String]) -> Result<Self, RuleError> {
        if texts.len() > RULES_MAX {
            return Err(RuleError::TooMany { count: texts.len() });
        }
        if texts.iter().any(|text| text.eq_ignore_ascii_case(NONE)) {
            return if texts.len() == 1 {
                Ok(Self::default())
            } else {
                Err(RuleError::NoneAmongOthers)
            };
        }
        let mut rules = Self::default();
        for text in texts {
            if text.starts_with(preset::MARK) {
                let unknown =
                    || RuleError::Preset { rule: text.clone(), known: preset::names().collect() };
                for host in preset::hosts(text).ok_or_else(unknown)? {
                    rules.0.push(Rule::parse(host)?);
                }
            } else {
                rules.0.push(Rule::parse(text)?);
            }
        }
        for rule in &rules.0 {
            // Rules for a parent domain may match, too.
            let example = match &rule.whom {
                HostPattern::Exactly(host) | HostPattern::Below(host) => Some(host),
                HostPattern::Public => None,
            };
            let of = rules.0.iter().filter(|other| match (&other.whom, example) {
                (HostPattern::Exactly(host) | HostPattern::Below(host), Some(example)) => {
                    host == example || example.is_below(host)
                }
                (HostPattern::Public, _) => true,
                (_, None) => false,
            });
            if ports(of).len() > PORTS_PER_NAME_MAX {
                return Err(RuleError::TooManyPorts { name: rule.to_string() });
            }
        }
        Ok(rules)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ports at which a name may be reached; none when it may not be at all.
    pub fn ports(&self, host: &Host) -> Vec<u16> {
        let mut ports = ports(self.0.iter().filter(|rule| rule.is_about(host)));
        ports.truncate(PORTS_PER_NAME_MAX);
        ports
    }

    /// The most ports that any name can have.
    pub fn ports_max(&self) -> usize {
        ports(self.0.iter()).len().clamp(1, PORTS_PER_NAME_MAX)
    }

    /// The rule that lets a name be reached at a port, as it was written.
    pub fn allowing(&self, host: &Host, port: u16) -> Option<String> {
        let mut rules = self.0.iter().filter(|rule| rule.is_about(host));
        rules.find(|rule| rule.has(port)).map(Rule::to_string)
    }

    /// The rules that match a name at some port, as they were written; the most specific comes first.
    pub fn naming(&self, host: &Host) -> Option<String> {
        let mut rules: Vec<_> = self.0.iter().filter(|rule| rule.is_about(host)).collect();
        // A stable sort: equally specific rules stay in the order in which they were written.
        rules.sort_by_key(|rule| rule.breadth());
        let texts: Vec<_> = rules.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

/// The ports of some rules, each once and in order.
fn ports<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<u16> {
    let mut ports: Vec<u16> = rules
        .flat_map(|rule| match rule.port {
            Some(port) => vec![port],
            None => WEB_PORTS.to_vec(),
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

impl Rule {
    fn parse(text: &str) -> Result<Self, RuleError> {
        let rule = || text.to_owned();
        if text.contains("//") || text.contains('/') {
            return Err(RuleError::Url { rule: rule() });
        }
        let host =
            |name: &str| name.parse::<Host>().map_err(|why| RuleError::Host { rule: rule(), why });
        let (name, port) = match text.rsplit_once(':') {
            // More colons are those of an address, which the name will be refused as.
            Some((name, port)) if !name.contains(':') => {
                let number = port.parse().ok().filter(|number| *number > 0);
                let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
                let number = number.filter(|_| is_plain);
                (name, Some(number.ok_or_else(|| RuleError::Port { rule: rule() })?))
            }
            _ => (text, None),
        };
        let whom = if name.eq_ignore_ascii_case(PUBLIC) {
            HostPattern::Public
        } else if let Some(suffix) = name.strip_prefix(BELOW) {
            if suffix.contains('*') {
                return Err(RuleError::Star { rule: rule() });
            }
            HostPattern::Below(host(suffix)?)
        } else if name.contains('*') {
            return Err(RuleError::Star { rule: rule() });
        } else {
            HostPattern::Exactly(host(name)?)
        };
        Ok(Self { whom, port })
    }

    fn is_about(&self, host: &Host) -> bool {
        match &self.whom {
            HostPattern::Exactly(name) => host == name,
            HostPattern::Below(suffix) => host.is_below(suffix),
            HostPattern::Public => host.is_qualified(),
        }
    }

    /// How unspecific its pattern is; the longest suffix is the most specific.
    fn breadth(&self) -> (u8, std::cmp::Reverse<usize>) {
        let (kind, chars) = match &self.whom {
            HostPattern::Exactly(_) => (0, 0),
            HostPattern::Below(suffix) => (1, suffix.as_str().len()),
            HostPattern::Public => (2, 0),
        };
        (kind, std::cmp::Reverse(chars))
    }

    fn has(&self, port: u16) -> bool {
        self.port.map_or_else(|| WEB_PORTS.contains(&port), |own| own == port)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whom {
            HostPattern::Exactly(host) => write!(f, "{host}")?,
            HostPattern::Below(suffix) => write!(f, "{BELOW}{suffix}")?,
            HostPattern::Public => f.write_str(PUBLIC)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Rules::parse(&texts).unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> RuleError {
        Rules::parse(&[text.to_owned()]).unwrap_err()
    }

    #[test]
    fn an_exact_name_is_that_name_at_the_ports_of_the_web() {
        let rules = rules(&["Example.org."]);
        assert_eq!(rules.ports(&host("example.ORG")), WEB_PORTS);
        for other in ["www.example.org", "example.org.evil.com", "xexample.org", "org"] {
            assert_eq!(rules.ports(&host(other)), [0; 0], "{other}");
        }
        assert_eq!(rules.allowing(&host("example.org"), 443).as_deref(), Some("example.org"));
        assert_eq!(rules.allowing(&host("example.org"), 22), None);
    }

    #[test]
    fn a_star_is_every_name_below_and_not_the_name_itself() {
        let rules = rules(&["*.example.org"]);
        assert_eq!(rules.ports(&host("a.b.example.org")), WEB_PORTS);
        assert_eq!(rules.ports(&host("example.org")), [0; 0]);
        assert_eq!(rules.ports(&host("notexample.org")), [0; 0]);
    }

    #[test]
    fn a_port_is_that_port_alone_and_adds_to_what_others_say() {
        let only = rules(&["db.example.org:5432"]);
        assert_eq!(only.ports(&host("db.example.org")), [5432]);
        assert_eq!(only.allowing(&host("db.example.org"), 443), None);
        let more = rules(&["db.example.org:5432", "*.example.org", "public:22"]);
        assert_eq!(more.ports(&host("db.example.org")), [22, 80, 443, 5432]);
    }

    #[test]
    fn a_name_is_known_by_all_its_rules_and_the_most_exact_comes_first() {
        let rules =
            rules(&["public:22", "*.org", "*.example.org", "db.example.org:5432", "other.org"]);
        for (name, expected) in [
            ("db.example.org", "db.example.org:5432, *.example.org, *.org, public:22"),
            ("www.example.org", "*.example.org, *.org, public:22"),
            ("a.example", "public:22"),
        ] {
            assert_eq!(rules.naming(&host(name)).as_deref(), Some(expected));
        }
        assert_eq!(rules.naming(&host("localhost")), None);
    }

    #[test]
    fn a_preset_is_the_hosts_of_its_registry_and_nothing_beside() {
        for name in preset::names() {
            let rules = rules(&[name]);
            for known in preset::hosts(name).expect("it is in the table") {
                assert_eq!(rules.ports(&host(known)), WEB_PORTS, "{name}");
            }
            assert_eq!(rules.ports(&host("example.org")), [0; 0], "{name}");
        }
        let both = rules(&["@npm", "example.org"]);
        assert_eq!(both.ports(&host("example.org")), WEB_PORTS);
        let error = refused("@pipy").to_string();
        assert!(error.contains("@pipy") && error.contains("@pypi"), "{error}");
    }

    #[test]
    fn public_is_every_name_of_the_internet() {
        let rules = rules(&["public"]);
        assert_eq!(rules.ports(&host("anything.example")), WEB_PORTS);
        assert_eq!(rules.ports(&host("localhost")), [0; 0], "it is nobody's on the internet");
    }

    #[test]
    fn invalid_rules_are_refused_with_a_reason() {
        for text in ["", ":80", "127.0.0.1", "10.0.0.0:80", "::1", "[::1]:80", "a b", "bücher.de"]
        {
            assert!(matches!(refused(text), RuleError::Host { .. }), "{text:?}");
        }
        for text in ["a.org:", "a.org:0", "a.org:65536", "a.org:*", "a.org:+80", "a.org:http"] {
            assert!(matches!(refused(text), RuleError::Port { .. }), "{text:?}");
        }
        for text in ["*", "*:80", "a.*.org", "*a.org", "*.*.org"] {
            assert!(matches!(refused(text), RuleError::Star { .. }), "{text:?}");
        }
        for text in ["https://a.org", "a.org/path", "10.0.0.0/8"] {
            assert!(matches!(refused(text), RuleError::Url { .. }), "{text:?}");
        }
        let many = vec!["a.org".to_owned(); RULES_MAX + 1];
        assert!(matches!(Rules::parse(&many), Err(RuleError::TooMany { .. })));
        let ports: Vec<String> = (1..=17).map(|port| format!("a.org:{port}")).collect();
        assert!(matches!(Rules::parse(&ports), Err(RuleError::TooManyPorts { .. })));
    }

    #[test]
    fn no_rules_allow_nothing_and_that_can_be_said() {
        assert_eq!(rules(&["none"]), Rules::default());
        let among: Vec<_> = ["none", "a.org"].map(str::to_owned).into();
        assert_eq!(Rules::parse(&among), Err(RuleError::NoneAmongOthers));
        assert_eq!(Rules::default().ports(&host("example.org")), [0; 0]);
        assert!(Rules::default().is_empty());
    }
}
