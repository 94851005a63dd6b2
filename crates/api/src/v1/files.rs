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
mod refusal;
mod shape;
mod tag;
mod tree;
mod upload;
mod watch;

use hyper::Method;

pub use path::{FilePath, PATH};
pub use range::Range;
pub use refusal::refused;
pub use shape::FileEntry;

use super::super::problem::Code;
use super::super::route::{Operation, operation};

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
        operation(Method::GET, CONTENT, "read_file", "The bytes of a file.", content::read)
            .about(
                "Follows symlinks. `Range` with one range is heeded where the file's size is known, \
                 and `If-Range` with its `ETag`. The tag is weak for as long as the file may still \
                 be changing. A `HEAD` answers with the size alone. `Burrow-File-Bytes` is the size \
                 of the whole file as its file system states it. A file that gets shorter while it \
                 is read cuts the connection.",
            )
            .problems(&[Code::Io, Code::Gone, Code::RangeNotSatisfiable]),
        operation(Method::PUT, CONTENT, "write_file", "Write a file.", upload::write)
            .run()
            .about(
                "Whole files are put in their place when all of the body has arrived and is on \
                 disk: readers see the old content or the new, and of an upload that breaks off \
                 nothing is left. A symlink stays, and what it points to is written. With `append` or `offset` the file is written where it is. \n\n\
                 To upload so that it can be gone on with: begin with `offset=0`, which empties the \
                 file; when the connection breaks, `HEAD` says in `Burrow-File-Bytes` how much has \
                 arrived; go on with that `offset`. \n\n\
                 `Content-Digest` with `sha-256` or `sha-512` is checked before a whole file is put \
                 in its place, and is refused where the file is written as it comes.",
            )
            .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}

fn trees() -> Vec<Operation> {
    [
        operation(Method::GET, FILES, "list_files", "What is in a directory.", tree::list)
            .about("In byte order of the names, a page at a time.")
            .problems(REFUSED),
        operation(Method::DELETE, FILES, "remove_file", "Remove a file.", tree::remove)
            .run()
            .about("A directory that is not empty needs `recursive`. Symlinks are not followed.")
            .problems(REFUSED),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/files/stat",
            "stat_file",
            "What is at a path.",
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
            "Give a file or directory another path on the same file system.",
            tree::rename,
        )
        .run()
        .problems(REFUSED),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/files/watch",
            "watch_files",
            "What changes under a path.",
            watch::watch,
        )
        .about(
            "The answer begins when the watch stands: what changes from then on is told. Ends when \
             the watched path is gone. A sandbox that is watched is not idle.",
        )
        .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}

fn archives() -> Vec<Operation> {
    [
        operation(Method::GET, ARCHIVE, "pack_files", "A tar archive of a path.", archive::pack)
            .about(
                "Entries are named from the last component of the path on. Devices, pipes and \
                 sockets are left out. An archive that breaks off cuts the connection.",
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
            "Nothing is written outside of the directory. Of an archive that breaks off, what was \
             unpacked stays.",
        )
        .problems(REFUSED),
    ]
    .map(|operation| operation.tag("files"))
    .to_vec()
}
