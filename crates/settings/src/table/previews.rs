//! `[previews]`: ports of sandboxes behind the server's own address.

use super::{ConfigOption, Section, is_origin, put};
use crate::shown::{quote, quote_all};
use crate::value::{InvalidValue, OFF, RawValue};
use crate::{ALL_NAMESPACES, LOCALHOST};
use sandbox::Name;

pub const SECTION: Section = Section {
    name: "previews",
    about: "Previews: ports of sandboxes behind the server's own address.",
    options: &[
        ConfigOption {
            key: "url",
            values: "an origin such as `\"https://preview.example.org\"`, `\"localhost\"`, or `\"off\"`",
            about: "Each port of a sandbox has a host name below this one, as in \
                    `https://3000-work.preview.example.org`. Give the scheme and port that browsers \
                    use, a wildcard entry of DNS, a wildcard certificate, and a domain with nothing \
                    else below it. `\"localhost\"` uses names below `localhost`, which every browser \
                    looks for on its own machine, if the server listens on loopback. With `\"off\"` \
                    ports are reached below `/p/` alone.",
            set: |settings, given| put(&mut settings.previews.url, url(given)),
            show: |settings| quote(settings.previews.url.as_deref().unwrap_or(OFF)),
        },
        ConfigOption {
            key: "public",
            values: "a list of namespaces, or `\"*\"` for all",
            about: "Namespaces whose ports anybody may reach who reaches the server, without a key or \
                    a link. Empty means none.",
            set: |settings, given| put(&mut settings.previews.public, public(given)),
            show: |settings| quote_all(&settings.previews.public),
        },
    ],
};

fn url(given: &RawValue) -> Result<Option<String>, InvalidValue> {
    let text = given.text()?.trim_end_matches('/');
    match text {
        OFF => Ok(None),
        LOCALHOST => Ok(Some(LOCALHOST.to_owned())),
        // A name below an address is none.
        text if is_origin(text) && !is_address(text) => Ok(Some(text.to_ascii_lowercase())),
        text => Err(InvalidValue::PreviewUrl(text.to_owned())),
    }
}

fn is_address(origin: &str) -> bool {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.starts_with('[') || name.parse::<std::net::Ipv4Addr>().is_ok()
}

fn public(given: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let check = |text: &str| match text.parse::<Name>() {
        Err(_) if text != ALL_NAMESPACES => Err(InvalidValue::PublicNamespace(text.to_owned())),
        _ => Ok(text.to_owned()),
    };
    given.texts()?.into_iter().map(check).collect()
}
