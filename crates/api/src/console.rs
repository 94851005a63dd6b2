//! The console: the files of the page at `/`, which are part of this program. The page is a client of the API
//! like any other, so nothing here answers more than the bytes of a file.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY,
};
use hyper::{Method, StatusCode};
use ring::digest::{SHA256, digest};

use super::body::Outgoing;
use super::call::Call;
use super::response::respond;
use super::route::{Operation, operation};
use super::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A file of the page: its path below `console/`, and what it holds.
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal $kind:ident)*) => {
        &[$(File {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../../../console/", $path)),
        }),*]
    };
}

/// The page itself, which is at `/`.
const PAGE: &str = "index.html";
/// The only style in frames that show HTML of sandboxes.
const FRAME_STYLE: &str = include_str!("../../../console/frame.css");

const FILES: &[File] = files! {
    "index.html" HTML
    "icon.svg" PICTURE
    "style.css" STYLE
    "parts.css" STYLE
    "views.css" STYLE
    "terminal.css" STYLE
    "frame.css" STYLE
    "app.js" SCRIPT
    "api.js" SCRIPT
    "charts.js" SCRIPT
    "dom.js" SCRIPT
    "format.js" SCRIPT
    "parts.js" SCRIPT
    "player.css" STYLE
    "player.js" SCRIPT
    "poll.js" SCRIPT
    "terminal/keys.js" SCRIPT
    "terminal/parser.js" SCRIPT
    "terminal/screen.js" SCRIPT
    "terminal/style.js" SCRIPT
    "terminal/view.js" SCRIPT
    "terminal/width.js" SCRIPT
    "views/artifacts.js" SCRIPT
    "views/audit.js" SCRIPT
    "views/caps.js" SCRIPT
    "views/cells.js" SCRIPT
    "views/completion.js" SCRIPT
    "views/contexts.js" SCRIPT
    "views/events.js" SCRIPT
    "views/files.js" SCRIPT
    "views/frame.js" SCRIPT
    "views/images.js" SCRIPT
    "views/keys.js" SCRIPT
    "views/logs.js" SCRIPT
    "views/metrics.js" SCRIPT
    "views/notebooks.js" SCRIPT
    "views/overview.js" SCRIPT
    "views/ports.js" SCRIPT
    "views/processes.js" SCRIPT
    "views/replay.js" SCRIPT
    "views/run.js" SCRIPT
    "views/sandbox.js" SCRIPT
    "views/sandboxes.js" SCRIPT
    "views/snapshots.js" SCRIPT
    "views/templates.js" SCRIPT
    "views/terminals.js" SCRIPT
};

/// What a browser may do for the page: load its own files and call this server, and nothing else. A frame
/// with HTML of a sandbox has this policy too; of styles in the text it takes only ours, by its digest.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(digest(&SHA256, FRAME_STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{style}'; \
         img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    );
    HeaderValue::try_from(policy).expect("a policy is visible ASCII")
});

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::GET, "/", "home", "Open the console.", home),
        operation(Method::GET, "/console/{file}", "console_file", "A file of the console.", file),
        operation(
            Method::GET,
            "/console/{part}/{file}",
            "console_part",
            "A file of a part of the console.",
            file,
        ),
    ]
    .map(|operation| operation.access(None).tag("server").undocumented())
    .to_vec()
}

/// The page for a browser; other clients, and all where there is no console, are sent to the reference.
async fn home(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let mut response = match found(PAGE).filter(|_| call.api.has_console()) {
        Some(page) if call.prefers("text/html") => answer(page, &call.headers),
        _ => {
            let mut response = hyper::Response::new(Outgoing::empty());
            *response.status_mut() = StatusCode::SEE_OTHER;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/docs"));
            response
        }
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(Raw(response))
}

async fn file(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let name = call.parameters.get("file").unwrap_or_default();
    let path = match call.parameters.get("part") {
        Some(part) => format!("{part}/{name}"),
        None => name.to_owned(),
    };
    match found(&path).filter(|_| call.api.has_console()) {
        Some(file) => Ok(Raw(answer(file, &call.headers))),
        None => Err(Refusal::not_found(format!("there is nothing at /console/{path}"))),
    }
}

fn found(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

/// A file, or that the client has it already. Browsers ask each time, so that a new bridge has a new page.
fn answer(file: &'static File, headers: &HeaderMap) -> super::body::Response {
    let tag = tag(file.text);
    let mut response = if has(headers, &tag) {
        let mut response = hyper::Response::new(Outgoing::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let body = Outgoing::whole(file.text.as_bytes());
        respond(StatusCode::OK, HeaderValue::from_static(file.kind), body)
    };
    let own = response.headers_mut();
    own.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    own.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    own.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    own.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    own.insert(ETAG, HeaderValue::try_from(tag).expect("base64 in quotes is a header"));
    response
}

fn tag(text: &str) -> String {
    format!("\"{}\"", STANDARD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..12]))
}

fn has(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|one| one.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console")
    }

    fn below(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                below(&path, found);
            } else {
                let path = path.strip_prefix(sources()).unwrap();
                found.insert(path.to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_part_of_the_program() {
        let mut written = BTreeSet::new();
        below(&sources(), &mut written);
        // That of the pages that `replay` exports, which are not served.
        assert!(written.remove("page.js"));
        let embedded: BTreeSet<_> = FILES.iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(written, embedded);
        for file in FILES {
            let kind = match file.path.rsplit_once('.').unwrap().1 {
                "html" => HTML,
                "js" => SCRIPT,
                "css" => STYLE,
                _ => PICTURE,
            };
            assert_eq!(file.kind, kind, "{}", file.path);
        }
    }

    #[test]
    fn no_file_of_the_page_makes_markup_of_text() {
        let ways = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "createContextualFragment",
            "DOMParser",
            "eval(",
            "new Function",
            "style=",
            "javascript:",
        ];
        for file in FILES {
            for way in ways {
                assert!(!file.text.contains(way), "{} has {way}", file.path);
            }
        }
        // HTML of a sandbox goes into a frame without rights, in one place.
        let framing = FILES.iter().filter(|file| file.text.contains("srcdoc"));
        assert_eq!(framing.map(|file| file.path).collect::<Vec<_>>(), ["views/frame.js"]);
    }

    #[test]
    fn the_policy_allows_no_text_of_the_page_but_the_style_of_frames() {
        let policy = POLICY.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 1, "{policy}");
    }

    #[test]
    fn a_client_that_has_a_file_is_not_sent_it_again() {
        let file = found(PAGE).unwrap();
        let mut headers = HeaderMap::new();
        let first = answer(file, &headers);
        assert_eq!(first.status(), StatusCode::OK);
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(answer(file, &headers).status(), StatusCode::NOT_MODIFIED);
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"another\""));
        assert_eq!(answer(file, &headers).status(), StatusCode::OK);
    }
}
