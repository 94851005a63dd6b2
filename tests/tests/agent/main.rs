//! The agent by itself: its size, how much it asks of the kernel, what it does after a panic, and what it does with a host that is hostile
//! or slow.

mod agent_panics;
mod agent_size;
mod calls;
mod hostile_host;
mod slow_readers;
