//! The slot protocol of diesel-locks as a model that is searched exhaustively: `docs/lease-model.md` says what
//! it covers and what it does not.
//!
//! In the order of their imports: [`config`] (the size, the mutants), [`invariant`] (the names of the invariants),
//! [`database`] (the statements), [`process`] (the sessions that send them), [`state`] (all of it at one moment),
//! [`action`] (one step), [`effect`] (what it does), [`protocol`] (what is searched), [`condition`] (what must be
//! true), [`search`] (runs the checker), [`trace`] (a path in words).

pub mod action;
pub mod condition;
pub mod config;
pub mod database;
pub mod effect;
pub mod invariant;
pub mod process;
pub mod protocol;
pub mod search;
pub mod state;
pub mod trace;
