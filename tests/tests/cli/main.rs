//! The command line, as a person at a terminal and a script see it.

mod attach;
mod background;
mod check_config;
mod completion;
mod examples_of_help;
mod newcomer;
mod options;
mod prompt;
mod repl_cli;
mod run;
mod top;
mod verbs;
