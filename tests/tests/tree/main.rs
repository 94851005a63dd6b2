//! The tree itself: its rules, its documents with their commands, and its examples.

mod deploy;
mod documents;
mod examples;
mod features;
mod held;
mod options;
mod pages;
mod tidy;
