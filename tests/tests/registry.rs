//! Images pulled from a real registry: by tag and digest, with credentials, over lines that break, onto
//! disks that are full, and from registries that have something else than they say.

#[path = "registry/auth.rs"]
mod auth;
#[path = "registry/pulls.rs"]
mod pulls;
#[path = "registry/scene.rs"]
mod scene;
#[path = "registry/trouble.rs"]
mod trouble;
