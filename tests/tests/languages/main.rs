//! Contexts in Python, Node and bash: difficult code, what it shows, and what a notebook's keeper saves.

mod displays;
mod keeper;
mod notation;
mod repl_nothing_lost;
mod science;
mod torture_bash;
mod torture_node;
mod torture_python;
