//! What the programs of this workspace share.
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "programs print errors, and tests panic"
)]

pub mod connection;
pub mod database;
pub mod document;
pub mod meeting;
pub mod outcome;
pub mod processes;
pub mod terminal;
#[cfg(feature = "testing")]
pub mod testing;
