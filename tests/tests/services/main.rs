//! What the bridge offers on top of runs: artifacts, web apps and notebooks.

mod apps;
mod artifacts;
mod notebooks;
