//! Attacks that once worked, and their siblings: by code in a sandbox, by a client with a key of one
//! namespace, by an image, by a registry. SECURITY.md names these tests beside each defence.
//!
//! Who runs them, where they are run as root:
//!
//! | module | as |
//! |---|---|
//! | `paths`, `races`, `images`, `calls`, `covered`, `boundary`, `doors::paths` | root, and once more as an ordinary user (`ordinary`), except for what only root can do |
//! | `boundary`, where it says "root is the host's" or "not mapped" | root with `user_namespaces` off, or over a root whose owners cannot be mapped |
//! | `ungrouped` | root without control groups of any version |
//! | `groups` | root and an ordinary user, in the machine of `tests/v2/run`, which has version 2 alone |
//! | `budget` and the other `doors` | root alone: they are about the bridge, whose user makes no difference, or start the users they need |
//!
//! On a host with version 1, all but `groups` and `ungrouped` meet that version.

mod agent;
mod boundary;
mod budget;
mod calls;
mod covered;
mod doors;
mod groups;
mod ids;
mod images;
mod ordinary;
mod paths;
mod races;
mod ungrouped;
