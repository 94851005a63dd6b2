//! Work on the sandbox's files: one handler for each request about them.
//!
//! `router` calls the handlers, with the stream opened where there is one. Whatever may block in
//! the file system runs on a bounded pool of threads ([`work`]), and no thread ever waits for a
//! client. Paths are the sandbox's own and reach all of it but the kernel's own file systems
//! ([`lookup`](crate::lookup)). What never happens is that *content* chooses a path: an archive lands
//! beneath its directory, a removal stays within its tree.
//!
//! ```text
//! handlers   read · write · info · list · directory · relocate · remove · archive · unpack · watch
//!               └──────┴────────────────────┬──────────────────────┴─────────┴────────┘
//! parts        work  path  refusal  attributes  staged  sparse  names  hard_links  layer  watcher
//! ```

mod archive;
mod attributes;
mod directory;
mod hard_links;
mod info;
mod layer;
mod limits;
mod list;
mod names;
mod path;
mod read;
mod refusal;
mod relocate;
mod remove;
mod sparse;
mod staged;
mod unpack;
mod watch;
mod watcher;
mod work;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use archive::{layer_get, tar_get};
pub use directory::make_directory;
pub use info::stat;
pub use list::list;
pub use read::read_file;
pub use relocate::rename;
pub use remove::remove;
pub use unpack::{layer_put, tar_put};
pub use watch::watch;
pub use write::write_file;
