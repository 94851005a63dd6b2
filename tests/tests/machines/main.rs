//! Virtual machines: what only they have. What they have in common with the process machine is tested by
//! `every_machine`.

mod asleep;
mod machine_extras;
mod monitors;
mod restored_elsewhere;
mod snapshot;
mod snapshot_travel;
mod vm;
mod warmed;
