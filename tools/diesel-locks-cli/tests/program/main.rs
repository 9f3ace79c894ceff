//! The commands, from their arguments to their output, on every engine.

mod cli;
mod doctor;
mod lists;
mod migrations;
mod operator;
mod run;
mod run_faults;
mod run_terminal;
mod usage;
