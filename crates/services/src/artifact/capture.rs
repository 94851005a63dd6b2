//! Turns a run's results into artifacts: its directories are listed before and after it, and new or changed
//! files are copied, with what the run has displayed or offered by name.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Text;
use protocol::requests::MakeDirectory;
use tokio::time::{Instant, timeout_at};

use super::blob::WrittenBlob;
use super::category::Category;
use super::left_out::{LeftOut, LeftOuts, Reason, clip};
use super::limits::{CAPTURE_TIME_MAX, CLOCK_SLACK, NAME_BYTES_MAX, PATH_BYTES_MAX};
use super::listing::{Listing, PathContent};
use super::offers::{Figure, Offers};
use super::{Artifacts, copy, glob};
use crate::store::artifacts::ArtifactRow;
use agent_client::guest::Guest;
use host::instant::now_ms;
use host::mime;
use sandbox::Name;

/// The directory for a sandbox's intended artifacts.
const ARTIFACTS_DIRECTORY: &str = "/artifacts";
/// Anybody may add files, and nobody can remove another user's.
const ARTIFACTS_PERMISSIONS: u32 = 0o1777;
/// The default working directory of a run.
const WORKDIR: &str = protocol::boot::HOME;

/// The directories of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// Its working directory; `/` if absent.
    pub workdir: Option<Text>,
    /// The value of `BURROW_ARTIFACTS_DIR` in its environment; `/artifacts` if absent.
    pub artifacts_dir: Option<Text>,
    /// Its user, if that is not the agent's own.
    pub user: Option<String>,
    /// Which files are meant, as patterns of paths below the first; all of them when there is none.
    pub outputs: Vec<String>,
}

/// The variable by which an environment names it.
pub const ARTIFACTS_DIR_VARIABLE: &str = "BURROW_ARTIFACTS_DIR";

/// The state of its directories before a run.
#[derive(Debug)]
pub struct Before {
    guest: Guest,
    roots: Vec<Text>,
    listing: Listing,
    begun_ms: u64,
    /// The requested outputs with their patterns, which match whole paths.
    outputs: Vec<(String, Vec<u8>)>,
}

/// The origin of artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub namespace: Name,
    pub sandbox: Name,
    pub notebook: Option<String>,
    /// Its number, if its runs have one.
    pub run: Option<u64>,
}

/// The artifacts of a run, and what did not become one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub artifacts: Vec<ArtifactRow>,
    pub left_out: Vec<LeftOut>,
}

/// Something that may become an artifact.
struct Candidate {
    name: String,
    path: Option<Text>,
    /// The MIME type that the run claims.
    claimed: Option<String>,
    source: Source,
}

enum Source {
    File,
    Shown(Figure),
}

/// What a run may still leave.
struct RemainingLimits {
    bytes: u64,
    count: usize,
}

impl Scene {
    fn roots(&self) -> Vec<Text> {
        let artifacts = self.artifacts_dir.clone().unwrap_or_else(|| ARTIFACTS_DIRECTORY.into());
        let workdir = self.workdir.clone().unwrap_or_else(|| WORKDIR.into());
        let mut roots: Vec<Text> = Vec::new();
        for root in [artifacts, workdir].into_iter().filter_map(|path| normal(&path)) {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        roots
    }
}

/// A directory in the form in which paths below it begin; `None` for a path that is not absolute or
/// has `..`.
fn normal(path: &Text) -> Option<Text> {
    let mut whole = Vec::new();
    let mut parts = path.as_bytes().split(|byte| *byte == b'/');
    parts.next().filter(|first| first.is_empty())?;
    for part in parts.filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return None;
        }
        whole.push(b'/');
        whole.extend_from_slice(part);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    Some(whole.into())
}

impl Artifacts {
    /// Looks at the directories of a run before it begins.
    pub async fn before(&self, guest: &Guest, scene: &Scene) -> Before {
        let roots = scene.roots();
        if scene.user.is_some() && scene.artifacts_dir.is_none() {
            // Such a run cannot make a directory in `/` itself. An existing one is as its image, or
            // its maker, wants it.
            let path = ARTIFACTS_DIRECTORY.into();
            let permissions = Some(ARTIFACTS_PERMISSIONS);
            let _ = guest.make_directory(MakeDirectory { path, permissions, parents: false }).await;
        }
        let begun_ms = now_ms();
        let listing = Listing::make(guest, &roots, None).await;
        let outputs = scene.outputs.iter().map(|pattern| {
            let base = scene.workdir.as_ref().map_or(WORKDIR.as_bytes(), Text::as_bytes);
            let base = if pattern.starts_with('/') { b"" } else { base };
            (pattern.clone(), [base, b"/", pattern.as_bytes()].concat())
        });
        Before { guest: guest.clone(), roots, listing, begun_ms, outputs: outputs.collect() }
    }

    /// Keeps the results of a run. Returned artifacts are on disk and do not change, whatever the next run
    /// does. This never fails: what could not be kept is listed with its reason.
    pub async fn after(
        &self,
        before: Before,
        origin: Origin,
        offers: Offers,
        until: Option<Instant>,
    ) -> Captured {
        let deadline = Instant::now() + CAPTURE_TIME_MAX;
        let deadline = until.map_or(deadline, |until| until.min(deadline));
        let (figures, files, mut left_out) = offers.into_parts();
        let offered = files.into_iter().map(|file| Candidate {
            name: file.name,
            path: Some(file.path),
            claimed: Some(file.mime),
            source: Source::File,
        });
        let mut candidates: Vec<_> = offered.collect();
        candidates.extend(figures.into_iter().enumerate().map(|(at, figure)| Candidate {
            name: match mime::extension(figure.mime) {
                Some(extension) => format!("figure-{}.{extension}", at + 1),
                None => format!("figure-{}", at + 1),
            },
            path: None,
            claimed: Some(figure.mime.to_owned()),
            source: Source::Shown(figure),
        }));
        let changed = changed(&before, &mut left_out).await;
        candidates.extend(meant(&before, changed, &mut left_out).into_iter().map(file));
        let limits = &self.0.limits;
        let mut room =
            RemainingLimits { bytes: limits.run_bytes_max, count: limits.run_artifacts_max };
        let mut artifacts: Vec<ArtifactRow> = Vec::new();
        let mut known = BTreeSet::new();
        for candidate in candidates {
            if candidate.path.as_ref().is_some_and(|path| !known.insert(path.clone())) {
                continue;
            }
            let (path, name) = (candidate.path.clone(), candidate.name.clone());
            let taking = self.take(&before.guest, candidate, &origin, &mut room);
            let taken = timeout_at(deadline, taking).await.unwrap_or(Err(Reason::NoTime));
            match (taken, path) {
                (Ok(artifact), _) => artifacts.push(artifact),
                (Err(reason), Some(path)) => left_out.add(&path, &reason),
                (Err(reason), None) => left_out.add_named(&name, &reason),
            }
        }
        let captured = Captured { artifacts, left_out: left_out.finish() };
        self.count(&captured);
        captured
    }

    /// Keeps one file that a client names.
    pub async fn keep(
        &self,
        guest: &Guest,
        path: Text,
        origin: &Origin,
    ) -> Result<ArtifactRow, Reason> {
        let limits = &self.0.limits;
        let mut room = RemainingLimits { bytes: limits.run_bytes_max, count: 1 };
        let path = normal(&path).ok_or(Reason::Name)?;
        let taking = self.take(guest, file(path), origin, &mut room);
        let deadline = Instant::now() + CAPTURE_TIME_MAX;
        timeout_at(deadline, taking).await.unwrap_or(Err(Reason::NoTime))
    }

    async fn take(
        &self,
        guest: &Guest,
        candidate: Candidate,
        origin: &Origin,
        room: &mut RemainingLimits,
    ) -> Result<ArtifactRow, Reason> {
        let limits = &self.0.limits;
        if room.count == 0 {
            return Err(Reason::TooMany { count_max: limits.run_artifacts_max });
        }
        let (left, bytes_max) = (room.bytes, limits.run_bytes_max);
        let check = |bytes: u64| match bytes {
            bytes if bytes > limits.artifact_bytes_max => {
                Err(Reason::TooLarge { bytes, bytes_max: limits.artifact_bytes_max })
            }
            bytes if bytes > left => Err(Reason::RunFull { bytes, left, bytes_max }),
            _ => Ok(()),
        };
        let Candidate { name, path, claimed, source } = candidate;
        let (whole, is_shown) = match (source, &path) {
            (Source::Shown(figure), _) => {
                check(figure.bytes.as_bytes().len() as u64)?;
                (copy::store(figure.bytes.into_bytes(), &self.0.blobs).await?, true)
            }
            (Source::File, Some(path)) => {
                (copy::copy(guest, path, &self.0.blobs, check).await?, false)
            }
            (Source::File, None) => return Err(Reason::Name),
        };
        let row = row(&whole, &name, path, claimed, is_shown, origin)?;
        let bytes = whole.bytes;
        let row = self.commit(whole, row).await?;
        room.count -= 1;
        room.bytes -= bytes;
        Ok(row)
    }
}

fn file(path: Text) -> Candidate {
    let name = path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    Candidate { name, path: Some(path), claimed: None, source: Source::File }
}

/// The files that are new or changed since then, in the artifacts' own directory first.
async fn changed(before: &Before, left_out: &mut LeftOuts) -> Vec<Text> {
    let now = Listing::make(&before.guest, &before.roots, Some(&before.listing)).await;
    for (path, reason) in before.listing.cuts.iter().chain(&now.cuts) {
        left_out.add(path, reason);
    }
    let slack_ms = CLOCK_SLACK.as_millis() as u64;
    let since_ms = i64::try_from(before.begun_ms.saturating_sub(slack_ms)).unwrap_or(i64::MAX);
    let mut by_root: BTreeMap<usize, Vec<Text>> = BTreeMap::new();
    for (path, found) in now.into_found() {
        let then = before.listing.get(&path);
        let is_new = match (found, then) {
            (found, Some(then)) if found == then => false,
            // A file that became empty is no result.
            (PathContent::File { bytes: 0, .. }, Some(PathContent::File { .. })) => false,
            (PathContent::File { .. }, Some(_)) => true,
            // A file that a truncated listing lacks may have existed.
            (PathContent::File { modified_ms, .. }, None) => {
                !before.listing.is_cut() || modified_ms >= since_ms
            }
            (PathContent::Other(kind), then) => {
                if then.is_some() || !before.listing.is_cut() {
                    left_out.add(&path, &Reason::of_kind(kind));
                }
                false
            }
        };
        if is_new {
            let root = before.roots.iter().position(|root| is_below(&path, root));
            by_root.entry(root.unwrap_or(before.roots.len())).or_default().push(path);
        }
    }
    by_root.into_values().flatten().collect()
}

/// The files that match the requested patterns. A pattern without a match is reported.
fn meant(before: &Before, files: Vec<Text>, left_out: &mut LeftOuts) -> Vec<Text> {
    if before.outputs.is_empty() {
        return files;
    }
    for (pattern, whole) in &before.outputs {
        if !files.iter().any(|path| glob::matches(whole, path.as_bytes())) {
            left_out.add_named(pattern, &Reason::NothingMatches);
        }
    }
    let is_meant =
        |path: &Text| before.outputs.iter().any(|(_, whole)| glob::matches(whole, path.as_bytes()));
    files.into_iter().filter(is_meant).collect()
}

fn is_below(path: &Text, root: &Text) -> bool {
    let (path, root) = (path.as_bytes(), root.as_bytes());
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| root.ends_with(b"/") || rest.first() == Some(&b'/'))
}

fn row(
    whole: &WrittenBlob,
    name: &str,
    path: Option<Text>,
    claimed: Option<String>,
    is_shown: bool,
    origin: &Origin,
) -> Result<ArtifactRow, Reason> {
    let id = super::ArtifactId::draw().map_err(|error| Reason::host(&error))?;
    let path = path.map(|path| path.to_string_lossy().into_owned());
    let is_text = mime::text(&whole.head).is_some();
    let sniffed = mime::of(path.as_deref().unwrap_or(name), &whole.head, is_text);
    let is_guess = matches!(sniffed, mime::OCTETS | mime::TEXT);
    let claimed = claimed.filter(|claimed| is_guess && is_mime(claimed));
    let mime = claimed.unwrap_or_else(|| sniffed.to_owned());
    let category = if is_shown { Category::Figure } else { Category::of(&mime) };
    let name = if name.is_empty() { "unnamed" } else { name };
    Ok(ArtifactRow {
        number: 0,
        id: id.to_string(),
        namespace: origin.namespace.to_string(),
        sandbox: origin.sandbox.to_string(),
        notebook: origin.notebook.clone(),
        run: origin.run,
        name: clip(name, NAME_BYTES_MAX).to_owned(),
        path: path.map(|path| clip(&path, PATH_BYTES_MAX).to_owned()),
        category: category.name().to_owned(),
        mime,
        size: whole.bytes,
        digest: whole.digest.as_str().to_owned(),
        created_ms: now_ms(),
    })
}

/// Whether a guest's MIME type is valid: two names with a slash, without parameters.
fn is_mime(claimed: &str) -> bool {
    let is_name = |part: &str| {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.len() <= 63 && part.bytes().all(is_char)
    };
    claimed.split_once('/').is_some_and(|(kind, own)| is_name(kind) && is_name(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_of_a_run_are_each_there_once_and_absolute() {
        let roots = |workdir: Option<&str>, artifacts_dir: Option<&str>| {
            let scene = Scene {
                workdir: workdir.map(Text::from),
                artifacts_dir: artifacts_dir.map(Text::from),
                ..Scene::default()
            };
            scene.roots().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(roots(None, None), ["/artifacts", "/sandbox"]);
        assert_eq!(roots(Some("/work/./a//"), Some("/out")), ["/out", "/work/a"]);
        assert_eq!(roots(Some("/out/"), Some("/out")), ["/out"]);
        assert_eq!(roots(Some("work"), Some("/a/../../etc")), Vec::<String>::new());
    }

    #[test]
    fn a_path_is_below_a_directory_and_not_below_one_that_begins_alike() {
        let below = |path: &str, root: &str| is_below(&path.into(), &root.into());
        assert!(below("/work/a", "/work") && below("/a", "/"));
        assert!(!below("/workshop/a", "/work") && !below("/a", "/work"));
    }

    #[test]
    fn a_guests_mime_type_is_two_plain_names() {
        assert!(is_mime("image/svg+xml") && is_mime("application/vnd.x-y"));
        for wrong in ["", "image", "image/", "a/b;c=d", "a/b\r\nx: y", "a/b/c", "ä/b"] {
            assert!(!is_mime(wrong), "{wrong}");
        }
    }
}
