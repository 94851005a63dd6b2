//! The documents that describe an image: index, manifest and configuration, as OCI and docker write them.
//! Pure. They are untrusted, and only the fields that are used are read.

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::layer::limits::LAYERS_MAX;
use super::store::limits::{CONFIG_STRINGS_BYTES_MAX, CONFIG_STRINGS_MAX, MANIFESTS_MAX};

/// The type of manifests that are written here.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Annotations with an image's name, in an archive or a layout.
pub const NAME_ANNOTATIONS: [&str; 2] =
    ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Why a document is of no use.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("cannot parse the {what}: {source}")]
    Json { what: &'static str, source: serde_json::Error },
    #[error("the image has {count} layers; the limit is {max}")]
    TooManyLayers { count: usize, max: usize },
    #[error("the index has {count} manifests; the limit is {max}")]
    TooManyManifests { count: usize, max: usize },
    #[error("the manifest has {layers} layers, but the configuration has {diff_ids}")]
    Disagree { layers: usize, diff_ids: usize },
    #[error("the image is for {found}, but this host is {wanted}")]
    Platform { found: String, wanted: String },
    #[error("the index has no image for {wanted}, only for {}", .found.join(", "))]
    NoPlatform { found: Vec<String>, wanted: String },
    #[error("the configuration's {what} has more than {max} strings, or a string with a zero byte")]
    Strings { what: &'static str, max: usize },
    #[error("the configuration's strings have more than {max} bytes in total")]
    StringsTooLong { max: usize },
}

/// A content and its source.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub annotations: std::collections::BTreeMap<String, String>,
}

impl Descriptor {
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        let annotations = std::collections::BTreeMap::new();
        Self { media_type: media_type.to_owned(), digest, size, platform: None, annotations }
    }
}

/// The platform that an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
}

impl Platform {
    /// This host's, in the words that images use.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), os: "linux".to_owned() }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

/// A manifest, or an index of several: the fields tell which.
#[derive(Debug, Deserialize)]
pub struct ManifestOrIndex {
    #[serde(rename = "mediaType")]
    pub media_type: Option<String>,
    pub config: Option<Descriptor>,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

impl ManifestOrIndex {
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let what = "manifest";
        let either: Self =
            serde_json::from_slice(bytes).map_err(|source| DocumentError::Json { what, source })?;
        let (layers, manifests) = (either.layers.len(), either.manifests.len());
        if layers > LAYERS_MAX {
            return Err(DocumentError::TooManyLayers { count: layers, max: LAYERS_MAX });
        }
        if manifests > MANIFESTS_MAX {
            return Err(DocumentError::TooManyManifests { count: manifests, max: MANIFESTS_MAX });
        }
        Ok(either)
    }
}

/// Chooses the manifest for this host; one without a platform may match.
pub fn choose(manifests: &[Descriptor]) -> Result<Vec<&Descriptor>, DocumentError> {
    let host = Platform::host();
    let fits = |found: &&Descriptor| found.platform.as_ref().is_none_or(|one| *one == host);
    let fitting: Vec<_> = manifests.iter().filter(fits).collect();
    if fitting.is_empty() {
        let platforms = manifests.iter().filter_map(|found| found.platform.as_ref());
        let found = platforms.map(ToString::to_string).collect();
        return Err(DocumentError::NoPlatform { found, wanted: host.to_string() });
    }
    Ok(fitting)
}

/// A manifest as it is written here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest<'a> {
    pub schema_version: u32,
    pub media_type: &'a str,
    pub config: &'a Descriptor,
    pub layers: &'a [Descriptor],
}

/// An index as it is written here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Index<'a> {
    pub schema_version: u32,
    pub media_type: &'a str,
    pub manifests: &'a [Descriptor],
}

/// An image in an archive of docker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerImage {
    pub config: String,
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    pub layers: Vec<String>,
}

/// A configuration.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Config {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub config: Option<ProcessConfig>,
    pub rootfs: RootFs,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RootFs {
    #[serde(rename = "type", default)]
    pub kind: String,
    pub diff_ids: Vec<Digest>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProcessConfig {
    #[serde(default)]
    pub env: Option<Vec<String>>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default)]
    pub cmd: Option<Vec<String>>,
}

/// An image's settings for the programs that are started in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
}

impl Process {
    /// The default command: the entry point with the default arguments.
    pub fn command(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.cmd).cloned().collect()
    }
}

impl Config {
    /// Reads a configuration and compares it with the layers that it describes.
    pub fn parse(bytes: &[u8], layers: usize) -> Result<Self, DocumentError> {
        let what = "configuration";
        let broken = |source| DocumentError::Json { what, source };
        // A list would pass for one, and later not be one.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(broken(serde::de::Error::custom("it is not an object")));
        }
        let config: Self = serde_json::from_slice(bytes).map_err(broken)?;
        let (diff_ids, host) = (config.rootfs.diff_ids.len(), Platform::host());
        if diff_ids != layers {
            return Err(DocumentError::Disagree { layers, diff_ids });
        }
        let platform = config.platform();
        if platform != host {
            let (found, wanted) = (platform.to_string(), host.to_string());
            return Err(DocumentError::Platform { found, wanted });
        }
        Ok(config)
    }

    /// The platform; an old configuration without one is accepted.
    fn platform(&self) -> Platform {
        let host = Platform::host();
        let or = |text: &String, other: String| if text.is_empty() { other } else { text.clone() };
        Platform {
            architecture: or(&self.architecture, host.architecture),
            os: or(&self.os, host.os),
        }
    }

    /// The settings for programs, within bounds.
    pub fn process(&self) -> Result<Process, DocumentError> {
        let Some(config) = &self.config else { return Ok(Process::default()) };
        let mut bytes = 0;
        let mut take = |what, strings: &Option<Vec<String>>| {
            let strings = strings.clone().unwrap_or_default();
            bytes += strings.iter().map(String::len).sum::<usize>();
            if strings.len() > CONFIG_STRINGS_MAX || strings.iter().any(|s| s.contains('\0')) {
                return Err(DocumentError::Strings { what, max: CONFIG_STRINGS_MAX });
            }
            Ok(strings)
        };
        let env = take("environment", &config.env)?;
        let entrypoint = take("entry point", &config.entrypoint)?;
        let cmd = take("command", &config.cmd)?;
        let one = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (workdir, user) = (one(&config.working_dir), one(&config.user));
        let ones =
            take("user and directory", &Some(workdir.iter().chain(&user).cloned().collect()))?;
        drop(ones);
        if bytes > CONFIG_STRINGS_BYTES_MAX {
            return Err(DocumentError::StringsTooLong { max: CONFIG_STRINGS_BYTES_MAX });
        }
        let env = env.into_iter().map(|variable| match variable.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (variable, String::new()),
        });
        Ok(Process {
            env: env.filter(|(name, _)| !name.is_empty()).collect(),
            // Builders may leave the slash out; there is nothing else that it could be relative to.
            workdir: workdir.map(|dir| format!("/{}", dir.trim_start_matches('/'))),
            user,
            entrypoint,
            cmd,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_an_object() {
        let host = Platform::host();
        let (architecture, os) = (&host.architecture, &host.os);
        let object = format!(
            r#" {{"architecture":"{architecture}","os":"{os}","rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        Config::parse(object.as_bytes(), 0).expect("it is one");
        let list = format!(r#"["{architecture}","{os}",null,{{"type":"layers","diff_ids":[]}}]"#);
        Config::parse(list.as_bytes(), 0).expect_err("it is a list");
    }
}
