//! What the tests of the programs share.

pub mod own_database;
pub mod processes;
pub mod run;

pub use own_database::OwnDatabase;
pub use run::{Run, assert_refused};
