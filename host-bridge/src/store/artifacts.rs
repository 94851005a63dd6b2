//! The rows of artifacts.
