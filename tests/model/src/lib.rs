//! The slot protocol of diesel-locks as a model that is searched exhaustively: `docs/lease-model.md` tells what
//! it covers and what it does not.
//!
//! The order of reading: [`config`] (how large, which mutant), [`database`] (the statements), [`process`] (who
//! sends them), [`state`] (all of it at one moment), [`action`] (one step of anybody), [`effect`] (what it
//! does), [`invariant`] (what must be true), [`model`] (for the checker), [`search`] (runs it), [`trace`] (a path
//! in words).

pub mod action;
pub mod config;
pub mod database;
pub mod effect;
pub mod invariant;
pub mod model;
pub mod process;
pub mod search;
pub mod state;
pub mod trace;
