//! Workspaces: directories of the host and buckets, as copies and as mounts.

mod workspace;
mod workspace_ends;
mod workspace_mounts;
mod workspace_qemu;
mod workspace_s3;
