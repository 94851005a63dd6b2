//! The command line, as a person at a terminal and a script see it.

mod attach;
mod check_config;
mod newcomer;
mod prompt;
mod repl_cli;
mod run;
