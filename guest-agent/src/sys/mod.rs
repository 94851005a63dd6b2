//! All `unsafe` of the agent: system calls that have no safe wrapper, and the code that runs
//! between clone and exec.
//!
//! Every other module of the platform half calls it; it calls none of ours. A module here covers
//! one part of the kernel's interface and has no policy: what to mount, whom to kill and when to
//! start is decided above. Each `unsafe` block is one operation with the reason why it is sound.

#![allow(unsafe_code)]

#[cfg(all(target_env = "musl", not(any(test, debug_assertions))))]
mod backtrace;
pub mod capability;
pub mod clock;
mod clone;
pub mod descriptor;
pub mod dirent;
pub mod entropy;
pub mod grow;
pub mod landlock;
pub mod lookup;
pub mod loop_device;
pub mod module;
pub mod mount;
pub mod mountinfo;
pub mod namespace;
pub mod net;
pub mod oom;
pub mod pipe;
pub mod prctl;
pub mod pty;
pub mod ready;
pub mod rename;
pub mod resource;
pub mod seccomp;
pub mod sha;
pub mod signal;
pub mod spawn;
#[cfg(all(target_env = "musl", not(test)))]
mod stdio;
pub mod uevent;
pub mod vsock;
pub mod wait;
pub mod xattr;
