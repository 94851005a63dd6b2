//! The duties of a first process, and of any that starts others: reaping children, handling the agent's
//! signals, and ending everything in order.
//!
//! `main` runs these; `session` starts programs through [`reaper::Reaper`].

pub mod hand_over;
pub mod power;
pub mod reaper;
pub mod shutdown;
pub mod signals;
mod spawners;

#[cfg(test)]
mod tests;
