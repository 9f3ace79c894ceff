//! The commands, from their arguments to their output, on every engine.

mod cli;
mod doctor;
mod doctor_set_ups;
#[cfg(feature = "postgres")]
mod guide;
mod lists;
mod migrations;
mod operator;
mod run;
mod run_faults;
mod run_terminal;
mod serve;
mod usage;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod user;
mod watch;
