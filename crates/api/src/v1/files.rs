//! Files of a sandbox: read and written as streams of bytes of any size, listed, changed, watched,
//! and taken out or put in as archives.
//!
//! ```text
//!  content ─▶ range, tag      archive ─▶ the answer's body
//!  upload  ─▶ digest          tree, watch
//! ```
//!
//! Everything is passed on as it comes, so that no size of a file is a size of this process; what
//! is slower, client or guest, sets the pace.

mod archive;
mod content;
mod digest;
mod limits;
mod path;
mod range;
mod received;
mod tag;
mod tree;
mod upload;
mod watch;

use hyper::Method;

pub use path::FilePath;
pub use range::Range;

use super::super::route::{Operation, operation};
use sandbox::refusal::Code;

pub fn operations() -> Vec<Operation> {
    [contents(), trees(), archives()].into_iter().flatten().collect()
}

const FILES: &str = "/v1/sandboxes/{namespace}/{name}/files";
const CONTENT: &str = "/v1/sandboxes/{namespace}/{name}/files/content";
const ARCHIVE: &str = "/v1/sandboxes/{namespace}/{name}/files/archive";

/// What the kernel and the agent may say to work on files.
const REFUSED: &[Code] = &[Code::Io, Code::Gone];

fn contents() -> Vec<Operation> {
    [
        operation(Method::GET, CONTENT, "read_file", "Download a file.", content::read)
            .about(
                "Follows symlinks. Supports `Range` with one range if the file's size is known, \
                and `If-Range` with its `ETag`. The tag is weak while the file may still be \
                changing. `HEAD` answers with the size only. `Burrow-File-Bytes` is the size of \
                the whole file as its file system reports it. If the file shrinks while it is \
                read, the connection is closed.",
            )
            .problems(&[Code::Io, Code::Gone, Code::RangeNotSatisfiable]),
        operation(Method::PUT, CONTENT, "write_file", "Write a file.", upload::write)
            .run()
            .about(
                "A whole file replaces the old one only when all of the body has arrived and is on \
                disk: readers see the old content or the new, and an upload that is cut off leaves \
                nothing. A symlink stays, and its target is written. With `append` or `offset` the \
                file is written in place. \n\nFor an upload that can be resumed, start with \
                `offset=0`, which empties the file. When the connection breaks, `HEAD` reports in \
                `Burrow-File-Bytes` how much has arrived; continue at that `offset`. \
                \n\n`Content-Digest` with `sha-256` or `sha-512` is checked before a whole file \
                replaces the old one, and is refused for a file that is written in place.",
            )
            .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}

fn trees() -> Vec<Operation> {
    [
        operation(Method::GET, FILES, "list_files", "List a directory.", tree::list)
            .about("Ordered by the bytes of the names, one page at a time.")
            .problems(REFUSED),
        operation(Method::DELETE, FILES, "remove_file", "Remove a file.", tree::remove)
            .run()
            .about("A directory that is not empty needs `recursive`. Symlinks are not followed.")
            .problems(REFUSED),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/files/stat",
            "stat_file",
            "Look up a path.",
            tree::stat,
        )
        .problems(REFUSED),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/files/directories",
            "make_directory",
            "Make a directory.",
            tree::make_directory,
        )
        .run()
        .problems(REFUSED),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/files/move",
            "move_file",
            "Move a file or directory within its file system.",
            tree::rename,
        )
        .run()
        .problems(REFUSED),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/files/watch",
            "watch_files",
            "Watch a path for changes.",
            watch::watch,
        )
        .about(
            "The answer starts when the watch is set up, and reports every change from then on. It \
            ends when the watched path is removed. A watched sandbox is not idle.",
        )
        .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}

fn archives() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            ARCHIVE,
            "pack_files",
            "Download a path as a tar archive.",
            archive::pack,
        )
        .about(
            "Entry names start with the last component of the path. Devices, pipes and sockets \
                are left out. If the archive cannot be finished, the connection is closed.",
        )
        .problems(REFUSED),
        operation(
            Method::PUT,
            ARCHIVE,
            "unpack_files",
            "Unpack a tar archive into a directory.",
            archive::unpack,
        )
        .run()
        .about(
            "Nothing is written outside of the directory. If the archive is cut off, the entries \
            unpacked so far stay.",
        )
        .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}
