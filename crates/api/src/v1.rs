//! The native API: one file per resource, each with its operations and the shapes that it speaks.

mod apps;
mod archives;
mod artifacts;
mod attach;
mod audit;
mod caps;
mod contexts;
mod events;
mod exec;
mod files;
mod forks;
mod images;
mod keys;
mod logs;
mod metrics;
mod nodes;
mod notebooks;
mod ports;
mod previews;
mod proofs;
mod render;
mod runs;
mod sandboxes;
mod sessions;
mod snapshots;
mod starts;
mod templates;
mod timeline;
mod usage;
mod value;
mod volumes;
mod workspace;

pub use starts::Starts;

use super::route::Operation;

pub fn operations() -> Vec<Operation> {
    [
        sandboxes::operations(),
        forks::operations(),
        images::operations(),
        snapshots::operations(),
        templates::operations(),
        volumes::operations(),
        workspace::operations(),
        exec::operations(),
        sessions::operations(),
        attach::operations(),
        metrics::operations(),
        usage::operations(),
        runs::operations(),
        logs::operations(),
        timeline::operations(),
        proofs::operations(),
        events::operations(),
        contexts::operations(),
        files::operations(),
        ports::operations(),
        previews::operations(),
        notebooks::operations(),
        apps::operations(),
        artifacts::operations(),
        render::operations(),
        keys::operations(),
        audit::operations(),
        caps::operations(),
        nodes::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
