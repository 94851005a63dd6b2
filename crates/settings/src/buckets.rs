//! The keys of `[workspaces.NAME]` for an S3 bucket. Pure.

use std::path::PathBuf;

use super::secrets::read_path;
use super::shown::quote;
use super::value::{InvalidValue, RawValue};
use host::dial::Origin;
use workspace::parse_prefix;
use workspace::s3::{Bucket, KeyNames, REGION_USUAL, is_bucket, is_region, parse_endpoint};

/// The keys of a bucket that were read so far.
#[derive(Default)]
pub struct BucketKeys {
    /// The first key that needs a bucket.
    first: Option<String>,
    name: Option<String>,
    endpoint: Option<Origin>,
    region: Option<String>,
    prefix: String,
    path_style: Option<bool>,
    access: Option<String>,
    secret: Option<String>,
    session: Option<String>,
    ca: Option<PathBuf>,
}

impl BucketKeys {
    /// Takes a key, if it is one of a bucket's.
    pub fn take(&mut self, key: &str, value: &RawValue) -> Option<Result<(), InvalidValue>> {
        let text = || value.text().map(str::to_owned);
        let taken = match key {
            "bucket" => text().and_then(|text| {
                let good = is_bucket(&text).then(|| text.clone());
                self.name = Some(good.ok_or(InvalidValue::BucketName(text))?);
                Ok(())
            }),
            "endpoint" => text().and_then(|text| {
                self.endpoint = Some(parse_endpoint(&text).ok_or(InvalidValue::Endpoint(text))?);
                Ok(())
            }),
            "region" => text().and_then(|text| {
                let good = is_region(&text).then(|| text.clone());
                self.region = Some(good.ok_or(InvalidValue::Region(text))?);
                Ok(())
            }),
            "prefix" => text().and_then(|text| {
                self.prefix = match text.as_str() {
                    "" => text,
                    _ => parse_prefix(&text).ok_or(InvalidValue::Prefix(text))? + "/",
                };
                Ok(())
            }),
            "path_style" => value.truth().map(|read| self.path_style = Some(read)),
            "ca" => read_path(value).map(|read| self.ca = Some(read)),
            "access_key" => text().map(|read| self.access = Some(read)),
            "secret_key" => text().map(|read| self.secret = Some(read)),
            "session_token" => text().map(|read| self.session = Some(read)),
            _ => return None,
        };
        self.first.get_or_insert_with(|| key.to_owned());
        Some(taken)
    }

    /// The bucket; none if no key of a bucket was set.
    pub fn bucket(self) -> Result<Option<Bucket>, InvalidValue> {
        let Some(first) = self.first else { return Ok(None) };
        let name = self.name.ok_or(InvalidValue::NoBucket { key: first })?;
        let keys = match (self.access, self.secret, self.session) {
            (Some(access), Some(secret), session) => Some(KeyNames { access, secret, session }),
            (None, None, None) => None,
            _ => return Err(InvalidValue::HalfKeys),
        };
        // Private servers seldom have a host name for each bucket.
        // And AWS's certificates are for names without further dots.
        let usual = self.endpoint.is_some() || name.contains('.');
        let path_style = self.path_style.unwrap_or(usual);
        let region = self.region.unwrap_or_else(|| REGION_USUAL.to_owned());
        let (endpoint, prefix, ca) = (self.endpoint, self.prefix, self.ca);
        Ok(Some(Bucket { name, endpoint, region, prefix, path_style, keys, ca }))
    }
}

/// The lines of one.
pub fn show(bucket: &Bucket) -> Vec<String> {
    let Bucket { name, endpoint, region, prefix, path_style, keys, ca } = bucket;
    let mut lines = vec![format!("bucket = {}", quote(name))];
    lines.extend(endpoint.as_ref().map(|at| format!("endpoint = {}", quote(at.to_string()))));
    lines.push(format!("region = {}", quote(region)));
    lines.push(format!("prefix = {}", quote(prefix)));
    lines.push(format!("path_style = {path_style}"));
    if let Some(KeyNames { access, secret, session }) = keys {
        lines.push(format!("access_key = {}", quote(access)));
        lines.push(format!("secret_key = {}", quote(secret)));
        lines.extend(session.as_ref().map(|name| format!("session_token = {}", quote(name))));
    }
    lines.extend(ca.as_ref().map(|path| format!("ca = {}", quote(path.to_string_lossy()))));
    lines
}
