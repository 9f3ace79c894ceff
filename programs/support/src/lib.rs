//! What the programs of this workspace share.

pub mod arguments;
pub mod child_process;
pub mod database;
pub mod errors;
pub mod outcome;
pub mod progress;
pub mod stop;
pub mod terminal;
