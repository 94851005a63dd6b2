//! Who may do what, and who did it: [`keys`] grant scopes and namespaces, [`preview`] says who may look at
//! a port of a sandbox, [`audit`] records what was done, [`receipt`] signs what ran.
//!
//! The doors ask this before they act. It acts on no sandbox itself.

#![forbid(unsafe_code)]

pub mod audit;
pub mod keys;
pub mod preview;
pub mod receipt;
