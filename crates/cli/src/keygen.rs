//! `keygen`: create an API key. Needs no daemon; a running one accepts the key within a second.

use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::values::{ValueError, parse_duration};
use super::{instant, output};
use access::keys::{self, Access, Issued, KeyRequest, KeysError, Namespaces, Scopes, Store};

/// Create an API key
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge keygen                                   namespace \"default\", 30 days
  MSB_API_KEY=$(host-bridge keygen --expire 8h) python3 script.py
  host-bridge keygen --namespace team --name ci --scope run --expire 90d
  host-bridge keygen --namespace '*' --scope admin --expire never

The key is printed on stdout once and not stored. Its id is printed on stderr; `host-bridge keys revoke`
takes it. The scope read allows viewing, run allows creating sandboxes and running code in them, and
admin allows everything; each includes the ones before it.")]
pub struct Keygen {
    /// Set the namespace that the key is for, or * for all
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    namespace: Namespaces,

    /// Set the lifetime, as in 8h, 30d, 4w, 6mo or 1y, or never
    #[arg(long, value_name = "TIME", default_value = "30d")]
    expire: Expiry,

    /// Set the scopes: read, run, admin, or several separated by commas
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "run")]
    scope: Vec<Access>,

    /// Set a label that says who uses the key
    #[arg(long, value_name = "LABEL")]
    name: Option<String>,

    /// Print the key and its record as JSON
    #[arg(long)]
    json: bool,
}

/// The lifetime of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Never,
    After(Duration),
}

/// Units beyond those of durations: weeks, months and years, in days.
const LONG_UNITS: [(&str, u32); 3] = [("w", 7), ("mo", 30), ("y", 365)];
const DAY: Duration = Duration::from_secs(86_400);

impl FromStr for Expiry {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "never" {
            return Ok(Self::Never);
        }
        for (unit, days) in LONG_UNITS {
            let count = text.strip_suffix(unit).and_then(|count| count.parse::<u32>().ok());
            if let Some(long) = count.and_then(|count| DAY.checked_mul(count.checked_mul(days)?)) {
                return Ok(Self::After(long));
            }
        }
        parse_duration(text).map(Self::After)
    }
}

impl Keygen {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let scopes = Scopes::of(&self.scope).unwrap_or(Scopes::UNSAID);
        let expires_at_ms = match self.expire {
            Expiry::Never => None,
            Expiry::After(Duration::ZERO) => return Err(KeysError::ExpiredAlready.into()),
            Expiry::After(time) => {
                let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                // Keys count in whole seconds; a second that has begun counts whole.
                let end_ms = instant::now_ms().saturating_add(ms);
                Some(end_ms.div_ceil(1000).saturating_mul(1000))
            }
        };
        context.paths.prepare()?;
        let store = Store::open(&keys::directory(&context.paths))?;
        let order = KeyRequest {
            namespace: self.namespace,
            scopes,
            expires_at_ms,
            name: self.name,
            issued_by: None,
        };
        let audit = context.audit()?;
        let (key, issued) = store.issue(order)?;
        let entry = control::entry("issue_key")
            .fact("key", issued.id.to_string())
            .fact("scopes", issued.scopes.to_string())
            .fact("namespaces", issued.namespace.to_string());
        audit.record(entry);
        audit.close().await;
        if self.json {
            output::print_json(&json!({
                "key": key.expose(),
                "id": issued.id,
                "name": issued.name,
                "namespace": issued.namespace,
                "scopes": issued.scopes,
                "issued_at_ms": issued.issued_at_ms,
                "expires_at_ms": issued.expires_at_ms,
            }))?;
        } else {
            output::print_line(key.expose())?;
            output::note(&describe(&issued));
        }
        Ok(Exit::SUCCESS)
    }
}

fn describe(issued: &Issued) -> String {
    let namespace = match &issued.namespace {
        Namespaces::All => "all namespaces".to_owned(),
        Namespaces::One(name) => format!("the namespace {name}"),
    };
    let end = match issued.expires_at_ms {
        Some(at_ms) => format!("until {}", instant::format(at_ms)),
        None => "without expiry".to_owned(),
    };
    format!(
        "key {id}: {scopes} in {namespace}, {end}; `host-bridge keys revoke {id}` revokes it",
        id = issued.id,
        scopes = issued.scopes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_live_for_units_that_durations_have_not() {
        let days = |count: u32| Ok(Expiry::After(DAY * count));
        assert_eq!("30d".parse(), days(30));
        assert_eq!("4w".parse(), days(28));
        assert_eq!("6mo".parse(), days(180));
        assert_eq!("1y".parse(), days(365));
        assert_eq!("5m".parse(), Ok(Expiry::After(Duration::from_secs(300))));
        assert_eq!("never".parse(), Ok(Expiry::Never));
        for text in ["", "w", "-1y", "forever", "1.5y", "99999999999y"] {
            assert!(text.parse::<Expiry>().is_err(), "{text}");
        }
    }
}
