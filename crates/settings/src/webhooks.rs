//! `[webhooks.NAME]`: where events of sandboxes are sent. Pure.

use std::path::PathBuf;

use super::limits::{WEBHOOK_ATTEMPTS_DEFAULT, WEBHOOK_ATTEMPTS_MAX};
use super::secrets::{read_path, read_reach, show_reach};
use super::shown::{quote, quote_all};
use super::value::{InvalidValue, RawValue};
use host::secret::Reach;
use host::similar::nearest;
use image::registry::Url;
use sandbox::event::Kind;

/// A receiver of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: Url,
    /// The name of the secret that requests are signed with.
    pub secret: String,
    pub namespaces: Reach,
    /// Empty for all.
    pub kinds: Vec<Kind>,
    pub allow_private: bool,
    pub ca: Vec<PathBuf>,
    pub attempts: u32,
}

/// All keys of such a table.
const KEYS: [&str; 7] = ["url", "secret", "namespaces", "kinds", "allow_private", "ca", "attempts"];

/// Reads the table of one webhook.
pub fn read(given: &RawValue) -> Result<Webhook, InvalidValue> {
    let (mut url, mut secret, mut namespaces) = (None, None, None);
    let (mut kinds, mut ca, mut allow_private) = (Vec::new(), Vec::new(), false);
    let mut attempts = WEBHOOK_ATTEMPTS_DEFAULT;
    for (key, value) in given.table()? {
        let read = match key.as_str() {
            "url" => read_url(value).map(|read| url = Some(read)),
            "secret" => value.text().map(|read| secret = Some(read.to_owned())),
            "namespaces" => read_reach(value).map(|read| namespaces = Some(read)),
            "kinds" => read_kinds(value).map(|read| kinds = read),
            "allow_private" => value.truth().map(|read| allow_private = read),
            "ca" => read_path(value).map(|read| ca = vec![read]),
            "attempts" => {
                let most = u64::from(WEBHOOK_ATTEMPTS_MAX);
                value.whole(1, most).map(|read| attempts = read as u32)
            }
            _ => {
                let meant = nearest(key, KEYS);
                return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
            }
        };
        read.map_err(|wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) })?;
    }
    let missing = |key| InvalidValue::WebhookLacks { key };
    Ok(Webhook {
        url: url.ok_or(missing("url"))?,
        secret: secret.ok_or(missing("secret"))?,
        namespaces: namespaces.ok_or(InvalidValue::Namespaces)?,
        kinds,
        allow_private,
        ca,
        attempts,
    })
}

/// The lines of such a table.
pub fn show(hook: &Webhook) -> Vec<String> {
    let kinds: Vec<_> = hook.kinds.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        format!("url = {}", quote(format!("{}{}", hook.url.origin, hook.url.path))),
        format!("secret = {}", quote(&hook.secret)),
        format!("namespaces = {}", show_reach(&hook.namespaces)),
        format!("kinds = {}", quote_all(&kinds)),
        format!("allow_private = {}", hook.allow_private),
        format!("attempts = {}", hook.attempts),
    ];
    lines.extend(hook.ca.iter().map(|path| format!("ca = {}", quote(path.to_string_lossy()))));
    lines
}

fn read_url(value: &RawValue) -> Result<Url, InvalidValue> {
    let text = value.text()?;
    Url::parse(text).ok_or_else(|| InvalidValue::WebhookUrl(text.to_owned()))
}

fn read_kinds(value: &RawValue) -> Result<Vec<Kind>, InvalidValue> {
    let read = |text: &str| text.parse::<Kind>().map_err(InvalidValue::from);
    value.texts()?.into_iter().map(read).collect()
}
