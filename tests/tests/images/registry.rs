//! Images pulled from a real registry: by tag and digest, with credentials, over lines that break, onto
//! disks that are full, and from registries that have something else than they say.

mod auth;
mod pulls;
mod scene;
mod trouble;
